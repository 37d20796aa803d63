//! Candidates that go wrong on purpose, for the tests of what is done about them: where
//! `TEC_TEST_PLANT` is set, a schedule whose text has the comment `# plant: WHAT` crashes, hangs,
//! takes memory or computes wrongly once it runs.

/// What a candidate does instead of its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// Dies of a wrong address.
    Crash,
    /// Never ends.
    Hang,
    /// Takes memory until there is none.
    Memory,
    /// Its first result has a wrong bit.
    Wrong,
}

/// What is planted in a schedule's text, if anything.
pub fn planted(text: &str) -> Option<Plant> {
    std::env::var_os("TEC_TEST_PLANT")?;
    let (_, what) = text.split_once("# plant: ")?;
    match what.split_whitespace().next()? {
        "crash" => Some(Plant::Crash),
        "hang" => Some(Plant::Hang),
        "memory" => Some(Plant::Memory),
        "wrong" => Some(Plant::Wrong),
        _ => None,
    }
}

/// Whether the first element of a reference output is to be wrong: `TEC_TEST_PLANT=reference`.
pub fn spoils_reference() -> bool {
    std::env::var_os("TEC_TEST_PLANT").is_some_and(|what| what == "reference")
}

impl Plant {
    /// What it does in place of a call; a wrong result comes after one.
    pub fn act(self) {
        match self {
            Plant::Crash => loop {
                // What the kernel does to a process that reads from no address; the handler that
                // tells an overflown stack takes the first.
                let own = rustix::process::getpid();
                let _ = rustix::process::kill_process(own, rustix::process::Signal::SEGV);
            },
            Plant::Hang => loop {
                std::thread::park();
            },
            Plant::Memory => {
                let mut taken: Vec<Vec<u8>> = Vec::new();
                loop {
                    taken.push(Vec::with_capacity(256 << 20));
                }
            }
            Plant::Wrong => {}
        }
    }
}
