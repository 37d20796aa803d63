//! Generates text with decoder.te, token by token. The caches belong to the caller; the module
//! appends to them in place.

const ROWS: usize = 64;
const VOCAB: usize = 96;
const D: usize = 64;

mod raw {
    #[link(name = "decoder")]
    unsafe extern "C" {
        /// As `decoder.h` declares it.
        pub fn decoder(
            tokens: *const i32,
            keys: *mut f32,
            values: *mut f32,
            logits: *mut f32,
            r: i64,
            p: i64,
        ) -> i32;
    }
}

/// The caches of one text.
struct Decoder {
    keys: Vec<f32>,
    values: Vec<f32>,
    length: usize,
}

impl Decoder {
    fn new() -> Decoder {
        Decoder { keys: vec![0.0; 2 * ROWS * D], values: vec![0.0; 2 * ROWS * D], length: 0 }
    }

    /// Appends tokens; returns the most likely next one.
    fn next(&mut self, tokens: &[i32]) -> i32 {
        assert!(!tokens.is_empty() && self.length + tokens.len() <= ROWS, "the caches are full");
        assert!(tokens.iter().all(|token| (0..VOCAB as i32).contains(token)), "a wrong token");
        let mut logits = [0.0; VOCAB];
        let (keys, values) = (self.keys.as_mut_ptr(), self.values.as_mut_ptr());
        let (count, position) = (tokens.len() as i64, self.length as i64);
        // SAFETY: the slices have the shapes of the source, and rows and tokens are in range.
        let status = unsafe {
            raw::decoder(tokens.as_ptr(), keys, values, logits.as_mut_ptr(), count, position)
        };
        assert_eq!(status, 0, "1: no memory for temporaries");
        self.length += tokens.len();
        let greater = |best, token| if logits[token] > logits[best] { token } else { best };
        (1..VOCAB).fold(0, greater) as i32
    }
}

fn main() {
    let prompt = "Once upon a time".bytes();
    let mut tokens: Vec<i32> = prompt.map(|byte| i32::from(byte) - 32).collect();
    let mut decoder = Decoder::new();
    while tokens.len() < ROWS {
        // The whole prompt first, then one token in each call.
        let token = decoder.next(&tokens[decoder.length..]);
        tokens.push(token);
    }
    let text: String = tokens.iter().map(|token| char::from(32 + *token as u8)).collect();
    println!("{text}");
}
