//! The command line. It runs `config` itself; `main` runs the other commands.

mod config;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use node_config::{FlagValue, Sources, VARIABLE_PREFIX};

pub use self::config::{ConfigCommand, run_config};

/// The headcni node agent.
///
/// Configuration: /etc/headcni/daemon.yaml or the file given by --config, overridden by HEADCNID_*
/// variables, overridden by flags.
#[derive(Clone, Debug, Parser)]
#[command(name = "headcni-daemon", version, disable_help_subcommand = true)]
pub struct Cli {
    /// [default: run]
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Run the agent until SIGTERM (the default)
    #[default]
    Run,
    /// Check and show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the pod CIDRs of this node, and every source that was tried
    #[command(name = "podcidr")]
    PodCidr,
    /// Remove everything that headcni created on this node, and restore what it replaced
    Uninstall,
}

#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Read the configuration from this file [default: /etc/headcni/daemon.yaml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        help = "This node's name in Kubernetes [default: $NODE_NAME, else the host name]"
    )]
    pub node_name: Option<String>,
    #[command(flatten)]
    pub settings: Settings,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Settings (override file and environment)")]
pub struct Settings {
    /// Lowest log level: debug, info, warn, error or fatal
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Log format: text or json
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Listen address of /healthz, /ready and /metrics
    #[arg(long, global = true, value_name = "ADDRESS:PORT")]
    pub monitoring_address: Option<String>,
    /// CNI mode: native or bridge
    #[arg(long, global = true, value_name = "MODE")]
    pub cni_mode: Option<String>,
    /// MTU of the mesh
    #[arg(long, global = true, value_name = "BYTES")]
    pub mtu: Option<String>,
}

impl Settings {
    /// The flags that were given, each with its config key.
    pub fn given(&self) -> Vec<FlagValue> {
        let all = [
            ("--log-level", "logging.level", &self.log_level),
            ("--log-format", "logging.format", &self.log_format),
            (
                "--monitoring-address",
                "monitoring.address",
                &self.monitoring_address,
            ),
            ("--cni-mode", "cni.mode", &self.cni_mode),
            ("--mtu", "network.mtu", &self.mtu),
        ];
        let given = all.into_iter().filter_map(|(flag, key, text)| {
            let text = text.clone()?;
            Some(FlagValue { flag, key, text })
        });
        given.collect()
    }
}

impl Options {
    /// These flags and the environment.
    pub fn sources(&self) -> Sources {
        let prefix = VARIABLE_PREFIX.as_bytes();
        let environment = std::env::vars_os();
        let ours = environment.filter(|(name, _)| name.as_encoded_bytes().starts_with(prefix));
        Sources {
            file: self.config.clone(),
            environment: ours.collect(),
            flags: self.settings.given(),
            ..Sources::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[rstest]
    #[case(&[], None)]
    #[case(&["run"], Some(Command::Run))]
    #[case(&["podcidr"], Some(Command::PodCidr))]
    #[case(&["uninstall"], Some(Command::Uninstall))]
    #[case(&["config", "check"], Some(Command::Config(ConfigCommand::Check)))]
    #[case(&["config", "schema"], Some(Command::Config(ConfigCommand::Schema)))]
    fn flags_may_come_before_and_after_the_command(
        #[case] words: &[&str],
        #[case] command: Option<Command>,
    ) {
        let flags = ["--config", "/x", "--mtu", "1400", "--node-name", "n"];
        let name = ["headcni-daemon"];
        for line in [
            [&name, words, &flags].concat(),
            [&name, &flags[..], words].concat(),
        ] {
            let cli = Cli::try_parse_from(line).unwrap();
            assert_eq!(cli.command, command);
            assert_eq!(cli.options.config, Some("/x".into()));
            assert_eq!(cli.options.node_name.as_deref(), Some("n"));
            assert_eq!(cli.options.settings.mtu.as_deref(), Some("1400"));
        }
    }

    #[rstest]
    #[case(&["start"])]
    #[case(&["config"])]
    #[case(&["--confg", "/x"])]
    fn unknown_commands_and_flags_are_rejected(#[case] words: &[&str]) {
        let line = [&["headcni-daemon"], words].concat();
        assert!(Cli::try_parse_from(line).is_err());
    }

    #[test]
    fn every_setting_has_a_flag_of_that_name() {
        let all = Settings {
            log_level: Some(String::new()),
            log_format: Some(String::new()),
            monitoring_address: Some(String::new()),
            cni_mode: Some(String::new()),
            mtu: Some(String::new()),
        };
        let command = Cli::command();
        for setting in all.given() {
            let mut flags = command
                .get_arguments()
                .filter_map(|argument| argument.get_long());
            assert!(
                flags.any(|flag| format!("--{flag}") == setting.flag),
                "{setting:?}"
            );
        }
    }
}
