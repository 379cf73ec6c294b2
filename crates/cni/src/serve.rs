//! The plugin's side of a call: read, negotiate, dispatch, answer.

use std::io::{self, IsTerminal, Read, Write};
use std::mem::ManuallyDrop;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::{
    CniArgs, ContainerId, Env, Error, IfName, MAX_DOCUMENT_BYTES, NetConf, NetResult,
    ValidAttachment, Verb, Version, code,
};

/// What every call brings along.
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub verb: Verb,
    /// The configuration.
    pub conf: NetConf,
    /// The whole environment: a delegate gets all of it.
    pub env: Env,
}

/// One interface of one container: what ADD makes and DEL undoes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The container.
    pub container: ContainerId,
    /// The interface's name inside it.
    pub ifname: IfName,
    /// The path of its network namespace; on DEL it may be gone.
    pub netns: Option<String>,
    /// More that the runtime says, the pod's name for instance.
    pub args: CniArgs,
}

/// A CNI plugin: one method per verb.
pub trait Plugin {
    /// What it is, for a person who runs it by hand.
    fn about(&self) -> String;
    /// Attaches a container.
    fn add(&self, call: &Call, to: &Attachment) -> Result<NetResult, Error>;
    /// Undoes an attachment; what is gone already is no error.
    fn del(&self, call: &Call, of: &Attachment) -> Result<(), Error>;
    /// Compares an attachment with the `prevResult` of the configuration.
    fn check(&self, call: &Call, of: &Attachment) -> Result<(), Error>;
    /// Removes every attachment to this network that isn't in `valid`.
    fn gc(&self, call: &Call, valid: &[ValidAttachment]) -> Result<(), Error>;
    /// Says whether an ADD could work now.
    fn status(&self, call: &Call) -> Result<(), Error>;
}

/// Answers the call that this process was started for. All that a plugin's `main` has to do.
pub fn serve_process(plugin: &dyn Plugin) -> ExitCode {
    let env = Env::of_process();
    let is_by_hand = env.get("CNI_COMMAND").is_ok_and(|verb| verb.is_none());
    let mut stdin: Box<dyn Read> = if is_by_hand && io::stdin().is_terminal() {
        // A person who tries the program gets an answer, not a wait.
        Box::new(io::empty())
    } else {
        Box::new(io::stdin().lock())
    };
    serve(plugin, env, &mut stdin, &mut io::stdout().lock())
}

/// Answers one call: parses `env` and `stdin`, asks `plugin`, writes to `stdout`.
pub fn serve(
    plugin: &dyn Plugin,
    env: Env,
    stdin: &mut dyn Read,
    stdout: &mut dyn Write,
) -> ExitCode {
    let mut version = Version::LATEST.as_str().to_owned();
    let (document, exit) = match answer(plugin, env, stdin, &mut version) {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(document)) => (document, ExitCode::SUCCESS),
        Err(error) => (error.to_json(&version), ExitCode::FAILURE),
    };
    // One write, so that a reader sees the answer whole or not at all. A runtime that can't read
    // it must not take it for a success.
    let document = ManuallyDrop::new(document);
    let text = format!("{:#}\n", *document);
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => exit,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A call as the environment tells it, before stdin is read.
enum Ask {
    Add(Attachment),
    Del(Attachment),
    Check(Attachment),
    Gc,
    Status,
}

/// The document to print, if any. `version` becomes that of the input as soon as it is known.
fn answer(
    plugin: &dyn Plugin,
    env: Env,
    stdin: &mut dyn Read,
    version: &mut String,
) -> Result<Option<Value>, Error> {
    let verb = verb(plugin, &env)?;
    let ask = match verb {
        Verb::Add => Ask::Add(attachment(verb, &env)?),
        Verb::Del => Ask::Del(attachment(verb, &env)?),
        Verb::Check => Ask::Check(attachment(verb, &env)?),
        Verb::Gc => Ask::Gc,
        Verb::Status => Ask::Status,
        Verb::Version => return versions(&read_all(stdin)?).map(Some),
    };
    let input = read_all(stdin)?;
    let conf = NetConf::parse(&input).inspect_err(|_| {
        if let Some(stated) = stated_version(&input) {
            *version = stated;
        }
    })?;
    conf.version().as_str().clone_into(version);
    if conf.version() < verb.since() {
        return Err(Error::new(
            code::INCOMPATIBLE_VERSION,
            format!(
                "{verb} needs cniVersion {} or newer, not {version}",
                verb.since()
            ),
        ));
    }

    // The process ends in a moment: the kernel takes its memory back faster than we piece by piece.
    let call = ManuallyDrop::new(Call { verb, conf, env });
    match ask {
        Ask::Add(to) => {
            let result = plugin.add(&call, &to)?;
            return Ok(Some(result.to_json(call.conf.version())));
        }
        Ask::Del(of) => plugin.del(&call, &of)?,
        Ask::Check(of) => plugin.check(&call, &of)?,
        Ask::Gc => plugin.gc(&call, &call.conf.valid_attachments()?)?,
        Ask::Status => plugin.status(&call)?,
    }
    Ok(None)
}

fn verb(plugin: &dyn Plugin, env: &Env) -> Result<Verb, Error> {
    let name = "CNI_COMMAND";
    let Some(text) = env.get(name)? else {
        return Err(Error::variable(
            name,
            format_args!("is missing. {}", plugin.about()),
        ));
    };
    text.parse().map_err(|()| {
        let choice = "is none of ADD, DEL, CHECK, GC, STATUS and VERSION";
        Error::variable(name, format_args!("{text:?} {choice}"))
    })
}

fn attachment(verb: Verb, env: &Env) -> Result<Attachment, Error> {
    let (container, ifname) = (env.get("CNI_CONTAINERID")?, env.get("CNI_IFNAME")?);
    let netns = env.get("CNI_NETNS")?;
    let missing: Vec<&str> = [
        ("CNI_CONTAINERID", container.is_none()),
        ("CNI_NETNS", netns.is_none() && verb != Verb::Del),
        ("CNI_IFNAME", ifname.is_none()),
    ]
    .into_iter()
    .filter_map(|(name, is_missing)| is_missing.then_some(name))
    .collect();
    match (container, ifname) {
        (Some(container), Some(ifname)) if missing.is_empty() => Ok(Attachment {
            container: ContainerId::new(container)?,
            ifname: IfName::new(ifname)?,
            netns: netns.map(str::to_owned),
            args: CniArgs::parse(env.get("CNI_ARGS")?.unwrap_or_default())?,
        }),
        _ => Err(Error::variable(
            &missing.join(", "),
            format_args!("missing, needed by {verb}"),
        )),
    }
}

fn read_all(stdin: &mut dyn Read) -> Result<Vec<u8>, Error> {
    let mut input = Vec::new();
    stdin
        .take(MAX_DOCUMENT_BYTES + 1)
        .read_to_end(&mut input)
        .map_err(|error| Error::io("read the network configuration from stdin", &error))?;
    if input.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(Error::new(
            code::IO_FAILURE,
            format!("the network configuration on stdin is larger than {MAX_DOCUMENT_BYTES} bytes"),
        ));
    }
    Ok(input)
}

/// The version that the input states, be it a known one or not.
fn stated_version(input: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(input).ok()?;
    Some(document.get("cniVersion")?.as_str()?.to_owned())
}

fn versions(input: &[u8]) -> Result<Value, Error> {
    let stated = if input.iter().all(u8::is_ascii_whitespace) {
        None
    } else {
        let document: Value = serde_json::from_slice(input).map_err(|error| {
            Error::new(
                code::DECODING_FAILURE,
                format!("the input of VERSION is not JSON: {error}"),
            )
        })?;
        document
            .get("cniVersion")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    Ok(json!({
        "cniVersion": stated.unwrap_or_else(|| Version::LATEST.to_string()),
        "supportedVersions": Version::ALL.map(Version::as_str),
    }))
}

#[cfg(test)]
mod tests;
