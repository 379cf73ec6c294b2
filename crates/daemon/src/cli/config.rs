//! `headcni-daemon config …`: checks and prints the configuration.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;

use node_config::{Sources, example, json_schema, load, show};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum ConfigCommand {
    /// List all errors and warnings; exit with 1 if there are errors
    Check,
    /// Show the effective values and their sources
    Show,
    /// Print a commented file with every key and its default
    Example,
    /// Print the JSON schema
    Schema,
}

/// Fails with exit code 1 if the configuration is invalid.
pub fn run_config(
    command: ConfigCommand,
    sources: &Sources,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<ExitCode> {
    match command {
        ConfigCommand::Example => write!(out, "{}", example())?,
        ConfigCommand::Schema => writeln!(out, "{:#}", json_schema().as_value())?,
        ConfigCommand::Check | ConfigCommand::Show => {
            let loaded = match load(sources) {
                Ok(loaded) => loaded,
                Err(error) => {
                    writeln!(err, "{error}")?;
                    return Ok(ExitCode::FAILURE);
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
    Ok(ExitCode::SUCCESS)
}
