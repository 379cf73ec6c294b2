//! headcni-daemon: runs a command and maps its result to an exit code.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use daemon::cli::{Cli, Command, run_config};
use daemon::{lifecycle, uninstall};
use node_core::node_name;
use node_podcidr::controller::discover_now;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(&cli) {
        Ok(code) => code,
        Err(error) => {
            // stderr may be closed.
            let _ = writeln!(io::stderr(), "headcni-daemon: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: &Cli) -> anyhow::Result<ExitCode> {
    let options = &cli.options;
    match cli.command.unwrap_or_default() {
        Command::Run => return lifecycle::run(options),
        Command::Config(command) => {
            let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
            return Ok(run_config(command, &options.sources(), &mut out, &mut err)?);
        }
        Command::PodCidr => {
            let loaded = node_config::load(&options.sources())?;
            let name = std::env::var_os(node_name::VARIABLE);
            let node = node_name::find(options.node_name.as_deref(), name.as_deref())?;
            let state_dir = Path::new(api::paths::DAEMON_STATE_DIR);
            let kube_nodes = node_kube::load(&loaded.config.kubernetes, state_dir);
            let found = discover_now(&node, &loaded.config, &kube_nodes);
            write!(io::stdout(), "{found}")?;
            if found.outcome.is_err() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Uninstall => {
            let mut report = |line: String| {
                let _ = writeln!(io::stdout(), "{line}");
            };
            uninstall::run(
                &options.sources(),
                options.node_name.as_deref(),
                &mut report,
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
