use std::cell::RefCell;

use rstest::rstest;

use super::*;

/// Notes what it was asked and answers with a fixed result, or fails.
#[derive(Default)]
struct Probe {
    asked: RefCell<Vec<String>>,
    fails: bool,
}

impl Probe {
    fn note(&self, call: &Call, text: &str) -> Result<(), Error> {
        self.asked
            .borrow_mut()
            .push(format!("{} {text}", call.verb));
        if self.fails {
            Err(Error::new(77, "told to fail"))
        } else {
            Ok(())
        }
    }
}

impl Plugin for Probe {
    fn about(&self) -> String {
        "a probe".to_owned()
    }
    fn add(&self, call: &Call, to: &Attachment) -> Result<NetResult, Error> {
        self.note(call, to.container.as_str())?;
        let ips = json!({ "ips": [{ "address": "10.0.0.2/24" }] });
        Ok(NetResult::from_json(ips, Version::LATEST).unwrap())
    }
    fn del(&self, call: &Call, of: &Attachment) -> Result<(), Error> {
        self.note(call, of.container.as_str())
    }
    fn check(&self, call: &Call, of: &Attachment) -> Result<(), Error> {
        self.note(call, of.container.as_str())
    }
    fn gc(&self, call: &Call, valid: &[ValidAttachment]) -> Result<(), Error> {
        self.note(call, &valid.len().to_string())
    }
    fn status(&self, call: &Call) -> Result<(), Error> {
        self.note(call, "")
    }
}

const FULL: &[(&str, &str)] = &[
    ("CNI_CONTAINERID", "box"),
    ("CNI_NETNS", "/run/netns/box"),
    ("CNI_IFNAME", "eth0"),
    ("CNI_PATH", "/opt/cni/bin"),
];

const UNSET: &[(&str, &str)] = &[
    ("CNI_CONTAINERID", ""),
    ("CNI_NETNS", ""),
    ("CNI_IFNAME", ""),
    ("CNI_PATH", ""),
];

/// Serves one call; `changes` set variables, an empty value unsets.
fn call(probe: &Probe, verb: &str, changes: &[(&str, &str)], stdin: &str) -> (bool, Value) {
    let verb = [("CNI_COMMAND", verb)];
    let env = FULL.iter().chain(&verb).chain(changes).copied().collect();
    let mut stdout = Vec::new();
    let exit = serve(probe, env, &mut stdin.as_bytes(), &mut stdout);
    let ok = format!("{exit:?}") == format!("{:?}", ExitCode::SUCCESS);
    let document = if stdout.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&stdout).unwrap()
    };
    (ok, document)
}

fn conf(version: &str) -> String {
    json!({ "cniVersion": version, "name": "net", "type": "probe" }).to_string()
}

#[rstest]
#[case("ADD", "ADD box")]
#[case("DEL", "DEL box")]
#[case("CHECK", "CHECK box")]
#[case("GC", "GC 0")]
#[case("STATUS", "STATUS ")]
fn each_verb_reaches_its_method(#[case] verb: &str, #[case] asked: &str) {
    let probe = Probe::default();
    let (ok, document) = call(&probe, verb, &[], &conf("1.1.0"));
    assert!(ok, "{document}");
    assert_eq!(*probe.asked.borrow(), [asked]);
    assert_eq!(
        document.is_null(),
        verb != "ADD",
        "only ADD prints on success: {document}"
    );
}

#[test]
fn add_answers_in_the_version_that_it_was_asked_in() {
    for version in Version::ALL {
        let (ok, document) = call(&Probe::default(), "ADD", &[], &conf(version.as_str()));
        assert!(ok);
        assert_eq!(document["cniVersion"], version.as_str());
        assert_eq!(document.get("ip4").is_some(), version <= Version::V0_2_0);
    }
    let (_, document) = call(&Probe::default(), "ADD", &[], r#"{"name":"net"}"#);
    assert_eq!(document["cniVersion"], "0.1.0");
}

#[rstest]
#[case("CHECK", "0.3.1", "0.4.0")]
#[case("GC", "1.0.0", "1.1.0")]
#[case("STATUS", "1.0.0", "1.1.0")]
fn a_verb_younger_than_the_configuration_is_an_incompatible_version(
    #[case] verb: &str,
    #[case] version: &str,
    #[case] needed: &str,
) {
    let probe = Probe::default();
    let (ok, document) = call(&probe, verb, &[], &conf(version));
    assert!(!ok);
    assert_eq!(document["code"], code::INCOMPATIBLE_VERSION);
    assert_eq!(document["cniVersion"], version);
    assert!(
        document["msg"].as_str().unwrap().contains(needed),
        "{document}"
    );
    assert!(probe.asked.borrow().is_empty());
}

#[rstest]
#[case("ADD", &[("CNI_NETNS", ""), ("CNI_IFNAME", "")], &["CNI_NETNS", "CNI_IFNAME"])]
#[case("CHECK", &[("CNI_NETNS", "")], &["CNI_NETNS"])]
#[case("DEL", &[("CNI_CONTAINERID", "")], &["CNI_CONTAINERID"])]
#[case("DEL", &[("CNI_IFNAME", "a/b")], &["CNI_IFNAME", "a/b"])]
#[case("ADD", &[("CNI_CONTAINERID", "a/b")], &["CNI_CONTAINERID", "a/b"])]
#[case("ADD", &[("CNI_ARGS", "oops")], &["CNI_ARGS", "oops"])]
#[case("", &[], &["CNI_COMMAND", "a probe"])]
#[case("FROB", &[], &["CNI_COMMAND", "FROB"])]
fn bad_variables_are_named(
    #[case] verb: &str,
    #[case] changes: &[(&str, &str)],
    #[case] parts: &[&str],
) {
    let probe = Probe::default();
    let (ok, document) = call(&probe, verb, changes, &conf("1.1.0"));
    assert!(!ok);
    assert_eq!(document["code"], code::INVALID_ENVIRONMENT);
    for part in parts {
        assert!(
            document["msg"].as_str().unwrap().contains(part),
            "{document}"
        );
    }
    assert!(probe.asked.borrow().is_empty());
}

#[test]
fn del_needs_no_namespace() {
    let (ok, _) = call(
        &Probe::default(),
        "DEL",
        &[("CNI_NETNS", "")],
        &conf("0.4.0"),
    );
    assert!(ok);
}

#[test]
fn garbage_collection_and_status_need_no_container() {
    for verb in ["GC", "STATUS"] {
        assert!(call(&Probe::default(), verb, UNSET, &conf("1.1.0")).0);
    }
}

#[test]
fn an_unknown_version_is_refused_in_that_version() {
    let (ok, document) = call(&Probe::default(), "ADD", &[], &conf("9.0.0"));
    assert!(!ok);
    assert_eq!(document["code"], code::INCOMPATIBLE_VERSION);
    assert_eq!(document["cniVersion"], "9.0.0");
}

#[test]
fn version_repeats_the_version_on_input_and_needs_nothing_else() {
    for (stdin, stated) in [
        ("", "1.1.0"),
        (r#"{"cniVersion":"0.3.1"}"#, "0.3.1"),
        (r#"{"cniVersion":"9.0.0"}"#, "9.0.0"),
    ] {
        let (ok, document) = call(&Probe::default(), "VERSION", UNSET, stdin);
        assert!(ok);
        assert_eq!(document["cniVersion"], stated);
        assert_eq!(
            document["supportedVersions"].as_array().unwrap().len(),
            Version::ALL.len()
        );
    }
    assert!(!call(&Probe::default(), "VERSION", &[], "{").0);
}

#[test]
fn an_error_of_the_plugin_is_printed_and_fails_the_call() {
    let probe = Probe {
        fails: true,
        ..Probe::default()
    };
    let (ok, document) = call(&probe, "ADD", &[], &conf("0.4.0"));
    assert!(!ok);
    assert_eq!(
        document,
        json!({ "cniVersion": "0.4.0", "code": 77, "msg": "told to fail" })
    );
}

#[test]
fn huge_input_is_refused_without_being_kept() {
    let mut stdin = std::io::repeat(b' ');
    let env: Env = FULL
        .iter()
        .chain(&[("CNI_COMMAND", "ADD")])
        .copied()
        .collect();
    let mut stdout = Vec::new();
    serve(&Probe::default(), env, &mut stdin, &mut stdout);
    let document: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(document["code"], code::IO_FAILURE);
}

#[test]
fn a_runtime_that_cannot_read_the_answer_sees_a_failure() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let env: Env = FULL
        .iter()
        .chain(&[("CNI_COMMAND", "ADD")])
        .copied()
        .collect();
    let exit = serve(
        &Probe::default(),
        env,
        &mut conf("1.0.0").as_bytes(),
        &mut Closed,
    );
    assert_eq!(format!("{exit:?}"), format!("{:?}", ExitCode::FAILURE));
}
