//! `tec run --emulate`: runs kernels for GPUs in the PTX emulator, with the emulator's report.

use super::compile::schedule_file;
use super::data::{self, summaries};
use super::report::{Error, Reporter, print, show_trace};
use super::run::{RunArgs, check_outputs, write_outputs};
use super::session::Source;
use super::verify::verify;
use crate::driver;
use crate::emulate::{Emulator, Orders};
use crate::ir::Kernel;

/// Compiles a file and runs its kernels. Fails if the emulator finds a defect or, with `--verify`,
/// if the results differ from the interpreter's.
pub fn run(args: &RunArgs, reporter: &Reporter) -> Result<(), Error> {
    let options = args.compile.options_to_run()?;
    if !options.target.is_gpu() {
        let text = format!("--emulate is for GPUs, not for {}", options.target);
        return Err(Error::Usage(text + ": give a target, `--target nvptx-sm_80`"));
    }
    if !args.file.ends_with(".te") {
        return Err(Error::Usage("--emulate needs the `.te` file".to_string()));
    }
    let mut trace = args.compile.trace()?;
    let (program, bounded) =
        schedule_file(&args.file, &options, args.compile.records.as_deref(), &mut trace)?;
    let failed = |failure| Error::Compile(program.sources.clone(), failure);
    let kernels = bounded.iter().map(|one| driver::lower(one, &options, None, &mut trace));
    let kernels: Vec<Kernel> = kernels.collect::<Result<_, _>>().map_err(failed)?;
    let ptx = driver::compile_ptx(&kernels, &options.target, &mut trace).map_err(failed)?;
    show_trace(&trace, args.compile.time);
    let source = Source { program, bounded, networks: Vec::new(), options };
    let all: Vec<&Kernel> = kernels.iter().collect();
    check_outputs(args, &all, Some(&source))?;
    let emulator = Emulator::new(&ptx)?;
    let mut right = true;
    for (index, kernel) in kernels.iter().enumerate() {
        let given = args.arguments.read(kernel, &all)?;
        let mut values = data::make_args(kernel, &given)?;
        let inputs = args.verify.then(|| values.clone());
        let progress = reporter.spinner(format!("emulating {}", kernel.name));
        let emulation = emulator.run(kernel, index, &mut values, Orders::Natural);
        progress.finish_and_clear();
        let emulation = emulation?;
        let mut text = String::new();
        if kernels.len() > 1 {
            text.push_str(&format!("# {}\n", kernel.name));
        }
        text.push_str(&summaries(kernel, &values));
        if let Some(inputs) = inputs {
            let (lines, same) = verify(&source, kernel, &values, inputs, reporter)?;
            text.push_str(&lines);
            right &= same;
        }
        text.push_str(&emulation.describe());
        right &= emulation.is_clean();
        print(&text)?;
        write_outputs(args, kernel, &values, reporter)?;
    }
    if right { Ok(()) } else { Err(Error::Silent) }
}
