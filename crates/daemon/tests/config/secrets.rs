//! Secrets are used and never printed, by no command and no error.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use node_config::{Location, SecretSource, load};
use proptest::prelude::*;
use rstest::rstest;

use crate::docs_and_schema::keys;
use crate::fixture::{ConfigDir, sources};

const CANARY: &str = "hskey-canary-5d1f";
const SECOND: &str = "tskey-parrot-77aa";

const COMMANDS: [&[&str]; 8] = [
    &["config", "check"],
    &["config", "show"],
    &["config", "example"],
    &["config", "schema"],
    &["podcidr"],
    &["--help"],
    &["--version"],
    &["nonsense"],
];

/// Runs every command and searches its output for the canaries.
fn assert_never_shown(dir: &ConfigDir, environment: &[(&str, &str)]) {
    for words in COMMANDS {
        let answer = dir.run(words, environment);
        let output = format!("{}{}", answer.out, answer.err);
        assert!(!output.is_empty(), "{words:?} printed nothing");
        assert!(
            !output.contains("canary") && !output.contains("parrot"),
            "{words:?}: {output}"
        );
    }
}

fn private(dir: &ConfigDir, name: &str, contents: &str) -> String {
    let path = dir.write(name, contents);
    set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

#[test]
fn secrets_in_files_are_read_and_never_printed() {
    let dir = ConfigDir::empty();
    let api_key = private(&dir, "api", &format!("\n {CANARY} \n"));
    let pre_auth_key = private(&dir, "pre", SECOND);
    dir.write(
        "daemon.yaml",
        format!(
            "headscale: {{url: https://x, apiKeyFile: {api_key}, preAuthKeyFile: {pre_auth_key}}}\n"
        ),
    );
    let loaded = dir.load(&[]).unwrap();
    let found = loaded.secrets.api_key.clone().unwrap();
    assert_eq!(found.secret.expose(), CANARY);
    assert_eq!(found.source, SecretSource::File(api_key.clone().into()));
    assert_eq!(
        loaded.secrets.pre_auth_key.clone().unwrap().secret.expose(),
        SECOND
    );
    assert_eq!(loaded.warnings, []);
    let debugged = format!(
        "{loaded:?} {found:?} {:?} {:#?}",
        found.secret, loaded.secrets
    );
    assert!(
        !debugged.contains("canary") && !debugged.contains("parrot"),
        "{debugged}"
    );
    assert!(debugged.contains("<redacted>"));
    assert_never_shown(&dir, &[]);
    let shown = dir.run(&["config", "show"], &[]).out;
    assert!(
        shown.contains(&format!("# API key: set (from file {api_key})")),
        "{shown}"
    );
}

#[test]
fn secrets_in_the_environment_are_read_and_never_printed() {
    let environment = [
        ("HEADCNID_HEADSCALE_API_KEY", CANARY),
        ("HEADCNID_HEADSCALE_PRE_AUTH_KEY", SECOND),
    ];
    let sources = sources(&environment);
    let loaded = load(&sources).unwrap();
    assert_eq!(
        loaded.secrets.api_key.as_ref().unwrap().secret.expose(),
        CANARY
    );
    assert_eq!(
        loaded
            .secrets
            .pre_auth_key
            .as_ref()
            .unwrap()
            .secret
            .expose(),
        SECOND
    );
    let debugged = format!("{loaded:?} {sources:?}");
    assert!(
        !debugged.contains("canary") && !debugged.contains("parrot"),
        "{debugged}"
    );
    let dir = ConfigDir::new("");
    assert_never_shown(&dir, &environment);
    let shown = dir.run(&["config", "show"], &environment).out;
    let output = "# pre-auth key: set (from variable HEADCNID_HEADSCALE_PRE_AUTH_KEY)";
    assert!(shown.contains(output), "{shown}");
}

#[test]
fn a_secret_from_two_places_is_refused() {
    let dir = ConfigDir::empty();
    let file = private(&dir, "api", CANARY);
    dir.write("daemon.yaml", format!("headscale:\n  apiKeyFile: {file}\n"));
    let environment = [("HEADCNID_HEADSCALE_API_KEY", SECOND)];
    let error = dir.load(&environment).unwrap_err();
    let diagnostic = &error.diagnostics[0];
    assert!(
        matches!(
            diagnostic.location,
            Location::File {
                line: 2,
                column: 15,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        diagnostic
            .text
            .contains("HEADCNID_HEADSCALE_API_KEY is set too"),
        "{error}"
    );
    assert_never_shown(&dir, &environment);
}

#[test]
fn a_world_readable_secret_file_is_a_warning() {
    let dir = ConfigDir::empty();
    let file = private(&dir, "api", CANARY);
    set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    dir.write(
        "daemon.yaml",
        format!("headscale: {{url: https://x, apiKeyFile: {file}}}\n"),
    );
    let loaded = dir.load(&[]).unwrap();
    let [warning] = loaded.warnings.as_slice() else {
        panic!("{:?}", loaded.warnings)
    };
    assert!(
        warning.text.contains(&format!("chmod 0600 {file}")),
        "{warning}"
    );
    assert_never_shown(&dir, &[]);
}

#[rstest]
#[case::empty(" \n", "is empty")]
#[case::two_words("canary canary", "more than one word")]
#[case::two_lines("canary\ncanary\n", "more than one word")]
#[case::control("canary\u{1b}[0m", "more than one word")]
fn a_secret_must_be_one_word(#[case] contents: &str, #[case] words: &str) {
    let dir = ConfigDir::empty();
    let file = private(&dir, "api", contents);
    dir.write(
        "daemon.yaml",
        format!("headscale: {{apiKeyFile: {file}}}\n"),
    );
    let error = dir.load(&[]).unwrap_err().to_string();
    assert!(
        error.contains(words) && error.contains("daemon.yaml:1:25: "),
        "{error}"
    );
    let environment = [("HEADCNID_HEADSCALE_API_KEY", contents)];
    let error = load(&sources(&environment)).unwrap_err().to_string();
    assert!(error.starts_with("HEADCNID_HEADSCALE_API_KEY: "), "{error}");
    assert!(
        error.contains(words) && !error.contains("canary"),
        "{error}"
    );
}

#[test]
fn a_secret_has_a_maximum_size_and_is_utf_8() {
    let dir = ConfigDir::empty();
    let file = private(&dir, "api", &"canary".repeat(1000));
    dir.write(
        "daemon.yaml",
        format!("headscale: {{apiKeyFile: {file}}}\n"),
    );
    let error = dir.load(&[]).unwrap_err().to_string();
    assert!(error.contains("larger than 4096 bytes"), "{error}");
    dir.write("api", b"canary\xff");
    let error = dir.load(&[]).unwrap_err().to_string();
    assert!(error.contains("is not text"), "{error}");
    assert_never_shown(&dir, &[]);
}

#[rstest]
#[case("headscale: {apiKey: hskey-canary-5d1f}\n")]
#[case("headscale: hskey-canary-5d1f\n")]
#[case("hskey-canary-5d1f\n")]
#[case("- hskey-canary-5d1f\n")]
#[case("headscale: [hskey-canary-5d1f]\n")]
#[case("headscale: {apiKey hskey-canary-5d1f}\n")]
#[case("headscale: {apiKey: hskey-canary-5d1f\n")]
#[case("headscale:\n  apiKey: 'hskey-canary-5d1f\n")]
#[case("headscale:\n  apiKey: hskey-canary-5d1f: x\n")]
#[case("headscale: {apiKey: *hskey-canary-5d1f}\n")]
#[case("headscale: {apiKey: !hskey-canary-5d1f x}\n")]
#[case("headscale: {url: hskey-canary-5d1f}\n")]
#[case("headscale: {url: \"https://hskey-canary-5d1f@x/\"}\n")]
#[case("headscale: {apiKeyFile: hskey-canary-5d1f}\n")]
#[case("headscale: {hskey-canary-5d1fhskey-canary-5d1fhskey-canary-5d1f: x}\n")]
fn a_secret_in_the_wrong_place_is_not_printed(#[case] yaml: &str) {
    let dir = ConfigDir::new(yaml);
    assert_eq!(dir.check().code, Some(1), "{yaml}");
    assert_never_shown(&dir, &[]);
}

#[test]
fn a_secret_as_the_value_of_any_key_is_not_in_the_error() {
    let mut refused = 0;
    for key in keys() {
        for value in [
            CANARY.to_owned(),
            format!("[{CANARY}]"),
            format!("{{a: {CANARY}}}"),
        ] {
            let yaml = key.with(&value);
            if let Err(error) = ConfigDir::new(&yaml).load(&[]) {
                let error = format!("{error} {error:?}");
                assert!(!error.contains("canary"), "{yaml}: {error}");
                refused += 1;
            }
        }
        if let Some(variable) = &key.variable
            && let Err(error) = load(&sources(&[(variable, CANARY)]))
        {
            assert!(!error.to_string().contains("canary"), "{error}");
            refused += 1;
        }
    }
    assert!(refused > 100, "{refused}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// A damaged file with a secret is an error without the secret, not a panic. Letters are kept, so that the
    /// secret stays one value.
    #[test]
    fn a_broken_file_never_shows_its_secret(
        at in 0_usize..200,
        length in 0_usize..6,
        more in "[\\[\\]{}:,\"'#&*!|>%@`?\\- \n\t\\\\]{0,4}",
    ) {
        let yaml = "network:\n  mtu: 1400\n  podCIDR: {base: \"10.244.0.0/16\"}\nheadscale:\n  \
                    url: https://x\n  apiKey: \"hskeycanary5d1fhskeycanary5d1fhskeycanary\"\n\
                    cni:\n  cniPlugins:\n    - {type: tuning}\n";
        let at = at.min(yaml.len());
        let signs = yaml[at..].chars().take_while(|c| !c.is_alphanumeric()).count();
        let end = at + length.min(signs);
        let broken = format!("{}{more}{}", &yaml[..at], &yaml[end..]);
        if let Err(error) = ConfigDir::new(&broken).load(&[]) {
            let text = format!("{error} {error:?}");
            prop_assert!(!text.contains("canary"), "{broken}\n{text}");
        }
    }
}
