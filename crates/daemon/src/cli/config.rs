//! `headcni-daemon config …`: looks at the configuration, and changes nothing.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;

use node_config::{Sources, example, json_schema, load, show};

/// What to do with the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum ConfigCommand {
    /// Say everything that is wrong with it, and end with 1 if something is
    Check,
    /// Show what is in force, and where each key comes from
    Show,
    /// Print a file with every key, its meaning and its default
    Example,
    /// Print its JSON schema
    Schema,
}

/// How a command went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is wrong.
    Sound,
    /// The configuration can't be used.
    Faulty,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Sound => Self::SUCCESS,
            Verdict::Faulty => Self::FAILURE,
        }
    }
}

/// Runs a command, with what was asked for on `out` and complaints on `err`.
pub fn run_config(
    command: ConfigCommand,
    sources: &Sources,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Verdict> {
    match command {
        ConfigCommand::Example => write!(out, "{}", example())?,
        ConfigCommand::Schema => writeln!(out, "{:#}", json_schema().as_value())?,
        ConfigCommand::Check | ConfigCommand::Show => {
            let loaded = match load(sources) {
                Ok(loaded) => loaded,
                Err(error) => {
                    writeln!(err, "{error}")?;
                    return Ok(Verdict::Faulty);
                }
            };
            for warning in &loaded.warnings {
                writeln!(err, "warning: {warning}")?;
            }
            if command == ConfigCommand::Show {
                write!(out, "{}", show(&loaded))?;
            } else {
                let file = match &loaded.file {
                    Some(path) => path.display().to_string(),
                    None => format!("no {}", sources.default_file.display()),
                };
                writeln!(out, "the configuration is sound ({file})")?;
            }
        }
    }
    Ok(Verdict::Sound)
}
