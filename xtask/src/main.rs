//! What the Makefile calls. `make help` tells what for.

mod run;
mod tools;

use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    match dispatch(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let (command, rest) = match args {
        [] => ("help", &[][..]),
        [command, rest @ ..] => (command.as_str(), rest),
    };
    match (command, rest) {
        ("tools", []) => tools::ensure(),
        (_, []) => bail!("no command {command:?}: run \"make help\""),
        (_, [extra, ..]) => bail!("{command} takes no argument {extra:?}"),
    }
}
