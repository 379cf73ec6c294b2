//! The configuration of the call as a whole.

use std::path::PathBuf;
use std::time::Duration;

use api::paths;
use cni::{Call, Error, Keys, Verb};
use serde_json::{Map, Value};

use crate::result_overrides::ResultOverrides;

/// How the plugin works, by the keys of the configuration.
#[derive(Debug, PartialEq)]
pub(crate) enum Mode {
    /// `plugins`: execute each in order.
    Chain(Vec<Map<String, Value>>),
    /// `delegate`: complete one plugin's configuration and execute it.
    Delegate(Map<String, Value>),
    /// Neither: the native datapath.
    Native,
}

#[derive(Debug)]
pub(crate) struct Conf {
    /// An error is reported only by verbs that need the mode: DEL and GC use the records.
    pub(crate) mode: Result<Mode, Error>,
    pub(crate) data_dir: PathBuf,
    pub(crate) delegate_timeout: Duration,
    pub(crate) overrides: ResultOverrides,
}

/// Timeout of a delegate. Runtimes give a whole ADD two to four minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

impl Conf {
    /// Parses the configuration. DEL and GC use the records and ignore invalid values.
    pub(crate) fn parse(call: &Call) -> Result<Self, Error> {
        let keys = Keys::new(call.conf.keys(), "");
        let data_dir = path_setting(
            call,
            keys,
            "dataDir",
            "HEADCNI_DATA_DIR",
            paths::PLUGIN_DATA_DIR,
        )?;
        Ok(Self {
            mode: mode(keys),
            data_dir,
            delegate_timeout: optional_for_cleanup(
                call,
                keys.seconds("delegate_timeout_seconds"),
                None,
            )?
            .unwrap_or(DEFAULT_TIMEOUT),
            overrides: optional_for_cleanup(
                call,
                ResultOverrides::parse(keys),
                ResultOverrides::default(),
            )?,
        })
    }
}

/// Replaces an invalid value by the default for DEL and GC.
pub(crate) fn optional_for_cleanup<T>(
    call: &Call,
    parsed: Result<T, Error>,
    default: T,
) -> Result<T, Error> {
    match parsed {
        Err(_) if matches!(call.verb, Verb::Del | Verb::Gc) => Ok(default),
        parsed => parsed,
    }
}

/// Name of the mode in events, also for an invalid configuration.
pub(crate) fn mode_name(keys: Keys<'_>) -> &'static str {
    match (keys.value("plugins"), keys.value("delegate")) {
        (Some(_), _) => "chain",
        (None, Some(_)) => "delegate",
        (None, None) => "native",
    }
}

/// A path from the config key, else from the environment variable, else the default.
pub(crate) fn path_setting(
    call: &Call,
    keys: Keys<'_>,
    key: &str,
    variable: &str,
    default: &str,
) -> Result<PathBuf, Error> {
    let (path, origin) = match (keys.text(key)?, call.env.get(variable)?) {
        (Some(path), _) => (path, keys.name(key)),
        (None, Some(path)) => (path, variable.to_owned()),
        (None, None) => (default, String::new()),
    };
    let path = PathBuf::from(path);
    if path.is_absolute() {
        return Ok(path);
    }
    // The working directory is the runtime's.
    Err(Error::config(format!(
        "{origin} {:?} must be an absolute path",
        path.display()
    )))
}

fn mode(keys: Keys<'_>) -> Result<Mode, Error> {
    match (keys.list("plugins")?, keys.object("delegate")?) {
        (Some(_), Some(_)) => Err(Error::config(
            "plugins and delegate exclude each other: make the delegate a member of plugins",
        )),
        (Some(members), None) => {
            if members.is_empty() {
                return Err(Error::config(
                    "plugins is [] and must have at least one member",
                ));
            }
            let members = members.iter().map(|member| member.as_object().cloned());
            let members = members
                .collect::<Option<_>>()
                .ok_or_else(|| keys.wrong("plugins", "a list of objects"))?;
            Ok(Mode::Chain(members))
        }
        (None, Some(delegate)) => Ok(Mode::Delegate(delegate.clone())),
        (None, None) => Ok(Mode::Native),
    }
}

#[cfg(test)]
mod tests {
    use cni::{Env, NetConf};
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn call(extra: &Value, env: &[(&str, &str)]) -> Call {
        let mut conf = json!({ "cniVersion": "1.0.0", "name": "net", "type": "headcni" });
        conf.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        Call {
            verb: Verb::Add,
            conf: NetConf::parse(conf.to_string().as_bytes()).unwrap(),
            env: env.iter().copied().collect::<Env>(),
        }
    }

    #[test]
    fn the_keys_determine_the_mode() {
        let mode = |extra| Conf::parse(&call(&extra, &[])).unwrap().mode.unwrap();
        assert_eq!(mode(json!({})), Mode::Native);
        assert_eq!(mode(json!({ "delegate": {} })), Mode::Delegate(Map::new()));
        assert!(matches!(
            mode(json!({ "plugins": [{ "type": "x" }] })),
            Mode::Chain(_)
        ));
    }

    #[rstest]
    #[case(json!({ "plugins": [{}], "delegate": {} }), "plugins and delegate")]
    #[case(json!({ "plugins": [] }), "plugins")]
    #[case(json!({ "plugins": ["x"] }), "plugins")]
    #[case(json!({ "plugins": {} }), "plugins")]
    #[case(json!({ "delegate": "bridge" }), "delegate")]
    #[case(json!({ "dataDir": 5 }), "dataDir")]
    #[case(json!({ "dataDir": "relative" }), "relative")]
    #[case(json!({ "delegate_timeout_seconds": 0 }), "delegate_timeout_seconds")]
    #[case(json!({ "delegate_timeout_seconds": "1m" }), "delegate_timeout_seconds")]
    #[case(json!({ "mtu": 12 }), "mtu")]
    fn invalid_values_are_rejected_with_their_key(#[case] extra: Value, #[case] part: &str) {
        let error = Conf::parse(&call(&extra, &[]))
            .and_then(|conf| conf.mode)
            .unwrap_err();
        assert_eq!(error.code, cni::code::INVALID_CONFIG);
        assert!(error.msg.contains(part), "{error}");
    }

    #[test]
    fn the_data_directory_comes_from_key_then_variable_then_default() {
        let data_dir = |extra, env: &[_]| Conf::parse(&call(&extra, env)).unwrap().data_dir;
        let env = [("HEADCNI_DATA_DIR", "/env")];
        assert_eq!(
            data_dir(json!({ "dataDir": "/key" }), &env),
            PathBuf::from("/key")
        );
        assert_eq!(data_dir(json!({}), &env), PathBuf::from("/env"));
        assert_eq!(
            data_dir(json!({}), &[]),
            PathBuf::from("/var/lib/cni/headcni")
        );
    }

    #[test]
    fn del_and_gc_ignore_invalid_values() {
        for extra in [
            json!({ "mtu": 12 }),
            json!({ "delegate_timeout_seconds": 0 }),
            json!({ "plugins": [] }),
        ] {
            for verb in [Verb::Del, Verb::Gc] {
                let lenient = Call {
                    verb,
                    ..call(&extra, &[])
                };
                assert!(Conf::parse(&lenient).is_ok(), "{verb} {extra}");
            }
        }
    }
}
