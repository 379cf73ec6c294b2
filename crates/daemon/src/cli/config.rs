//! `headcni-daemon config …`: read-only commands for the configuration.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;

use node_config::{Sources, example, json_schema, load, show};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum ConfigCommand {
    /// Report all errors, and exit with 1 if there is one
    Check,
    /// Show the effective configuration and the source of each key
    Show,
    /// Print a file with every key, its description and its default
    Example,
    /// Print its JSON schema
    Schema,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Valid,
    Invalid,
}

impl From<Validity> for ExitCode {
    fn from(validity: Validity) -> Self {
        match validity {
            Validity::Valid => Self::SUCCESS,
            Validity::Invalid => Self::FAILURE,
        }
    }
}

/// Runs a command with its output on `out` and errors on `err`.
pub fn run_config(
    command: ConfigCommand,
    sources: &Sources,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Validity> {
    match command {
        ConfigCommand::Example => write!(out, "{}", example())?,
        ConfigCommand::Schema => writeln!(out, "{:#}", json_schema().as_value())?,
        ConfigCommand::Check | ConfigCommand::Show => {
            let loaded = match load(sources) {
                Ok(loaded) => loaded,
                Err(error) => {
                    writeln!(err, "{error}")?;
                    return Ok(Validity::Invalid);
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
                writeln!(out, "the configuration is valid ({file})")?;
            }
        }
    }
    Ok(Validity::Valid)
}
