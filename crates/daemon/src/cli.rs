//! The command line: what was asked for, and where the configuration comes from.
//!
//! It runs `config` itself. The other commands are for `main`.

mod config;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use node_config::{FlagValue, Sources, VARIABLE_PREFIX};

pub use self::config::{ConfigCommand, Validity, run_config};

/// The agent that makes this machine a node of the cluster's network.
///
/// Without a command it runs. It reads /etc/headcni/daemon.yaml, or the file that --config names,
/// then variables that begin with HEADCNID_, then flags.
#[derive(Clone, Debug, Parser)]
#[command(name = "headcni-daemon", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do; run, unless it is said.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What every command takes.
    #[command(flatten)]
    pub options: Options,
}

/// What to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Keep this node's network up until told to stop (the default)
    #[default]
    Run,
    /// Check and show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say which addresses this node's pods get, and how that was found out
    #[command(name = "podcidr")]
    PodCidr,
    /// Take away everything that headcni made on this node, and put back what it set aside
    Uninstall,
}

/// What every command takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Read the configuration from this file [default: /etc/headcni/daemon.yaml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// This node's name in Kubernetes.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        help = "This node's name in Kubernetes [default: $NODE_NAME, else the host's name]"
    )]
    pub node_name: Option<String>,
    /// Keys that win over file and environment.
    #[command(flatten)]
    pub settings: Settings,
}

/// Keys that win over file and environment.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Settings, which win over file and environment")]
pub struct Settings {
    /// The least important log lines to be shown: debug, info, warn, error or fatal
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// The form of log lines: text or json
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Where /healthz, /ready and /metrics are served
    #[arg(long, global = true, value_name = "ADDRESS:PORT")]
    pub monitoring_address: Option<String>,
    /// How a pod's network is made: native or bridge
    #[arg(long, global = true, value_name = "MODE")]
    pub cni_mode: Option<String>,
    /// The largest packet that the mesh carries
    #[arg(long, global = true, value_name = "BYTES")]
    pub mtu: Option<String>,
}

impl Settings {
    /// Those that were given, each with the key that it sets.
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
    /// Where the configuration comes from: these flags, and the process's environment.
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
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[rstest]
    #[case(&[], None)]
    #[case(&["run"], Some(Command::Run))]
    #[case(&["podcidr"], Some(Command::PodCidr))]
    #[case(&["uninstall"], Some(Command::Uninstall))]
    #[case(&["config", "check"], Some(Command::Config(ConfigCommand::Check)))]
    #[case(&["config", "schema"], Some(Command::Config(ConfigCommand::Schema)))]
    fn flags_are_taken_before_and_after_the_command(
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
    fn what_is_not_known_is_refused(#[case] words: &[&str]) {
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
