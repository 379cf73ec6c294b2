//! A plugin that bears witness: it writes down its whole environment and its input.
//!
//! `noop` records some variables only, and reads its input as Go does.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

/// A directory for `CNI_PATH` with plugins that write down what they get.
pub(crate) struct Witness {
    dir: TempDir,
}

/// One call as a plugin got it.
#[derive(Debug)]
pub(crate) struct Testimony {
    /// The plugin's type.
    pub(crate) kind: String,
    /// `CNI_COMMAND`
    pub(crate) verb: String,
    /// Every variable, sorted.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The input, byte by byte.
    pub(crate) stdin: String,
}

impl Testimony {
    pub(crate) fn conf(&self) -> Value {
        serde_json::from_str(&self.stdin).unwrap()
    }
}

impl Witness {
    /// Plugins of these types, which answer every ADD with `result`.
    pub(crate) fn new(kinds: &[&str], result: &Value) -> Self {
        let dir = TempDir::with_prefix("witness-").unwrap();
        let here = dir.path().display();
        // Every call has files of its own, numbered by an append that all plugins share.
        let script = format!(
            "#!/bin/sh\n\
             kind=${{0##*/}}\n\
             echo $kind >> {here}/order\n\
             call={here}/$(grep -c . {here}/order)\n\
             cat /proc/$$/environ > $call.env\n\
             cat > $call.stdin\n\
             echo complaint of $kind >&2\n\
             if [ \"$CNI_COMMAND\" = ADD ]; then cat {here}/result; fi\n"
        );
        let write = |name: &str, text: &str| {
            let mut file = File::create(dir.path().join(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        write("result", &result.to_string());
        for kind in kinds {
            write(kind, &script);
            let executable = Permissions::from_mode(0o755);
            fs::set_permissions(dir.path().join(kind), executable).unwrap();
        }
        Self { dir }
    }

    /// Where the plugins are.
    pub(crate) fn path(&self) -> String {
        self.dir.path().display().to_string()
    }

    /// All calls so far, in order.
    pub(crate) fn calls(&self) -> Vec<Testimony> {
        let order = fs::read_to_string(self.dir.path().join("order")).unwrap_or_default();
        let file = |number: usize, extension: &str| -> PathBuf {
            self.dir.path().join(format!("{number}.{extension}"))
        };
        let call = |(number, kind): (usize, &str)| {
            let env = variables(&fs::read(file(number, "env")).unwrap());
            let verb = env.iter().find(|(name, _)| name == "CNI_COMMAND");
            let verb = verb.unwrap().1.to_str().unwrap().to_owned();
            Testimony {
                kind: kind.to_owned(),
                verb,
                stdin: fs::read_to_string(file(number, "stdin")).unwrap(),
                env,
            }
        };
        (1..).zip(order.lines()).map(call).collect()
    }

    /// The calls so far as `kind verb`, in order.
    pub(crate) fn order(&self) -> Vec<String> {
        let calls = self.calls().into_iter();
        calls
            .map(|call| format!("{} {}", call.kind, call.verb))
            .collect()
    }
}

fn variables(environ: &[u8]) -> Vec<(OsString, OsString)> {
    let pairs = environ
        .split(|byte| *byte == 0)
        .filter(|pair| !pair.is_empty());
    let mut pairs: Vec<_> = pairs
        .map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=').unwrap();
            let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            (text(&pair[..equals]), text(&pair[equals + 1..]))
        })
        .collect();
    pairs.sort();
    pairs
}
