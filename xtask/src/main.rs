//! The commands behind the Makefile's targets; `make help` lists them.

mod bench;
mod cargo;
mod chart;
mod check;
mod demo;
mod dist;
mod privilege;
mod process;
mod test;
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
    let (command, rest) = args
        .split_first()
        .map_or(("", args), |(c, rest)| (c.as_str(), rest));
    match (command, rest) {
        ("bench", rest) => bench::run(rest),
        ("build", []) => dist::build(),
        ("chart", rest) => chart::run(rest),
        ("check", []) => check::check(),
        ("demo", rest) => demo::run(rest),
        ("e2e", []) => test::end_to_end(),
        ("install", rest) => dist::install(rest),
        ("test", []) => test::test(),
        ("tools", rest) => tools::run(rest),
        (_, []) => bail!("unknown command {command:?}: run \"make help\""),
        (_, [extra, ..]) => bail!("{command} takes no argument {extra:?}"),
    }
}
