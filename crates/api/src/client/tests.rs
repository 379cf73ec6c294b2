use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;

use rstest::rstest;
use tempfile::TempDir;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);
const IMPATIENCE: Duration = Duration::from_millis(100);

/// A server for one client: `answers` gets its lines, and says what to write.
fn server(
    answers: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static,
) -> (TempDir, PathBuf, thread::JoinHandle<()>) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|count| count > 0) {
            let Some(answer) = answers(&line) else { return };
            // The client may have had enough.
            let _ = stream.write_all(&answer);
            line.clear();
        }
    });
    (dir, path, thread)
}

#[test]
fn several_questions_are_answered_on_one_connection() {
    let (_dir, path, thread) = server(|line| {
        Some(match line {
            "{\"version\":1,\"ask\":\"pods\"}\n" => {
                b"{\"version\":1,\"answer\":[{\"container\":\"c\"}]}\n".to_vec()
            }
            _ => b"{\"version\":1,\"answer\":{\"pods\":1,\"newer\":true}}\n".to_vec(),
        })
    });
    let mut client = Client::connect(&path, PATIENCE).unwrap();
    assert_eq!(client.pods().unwrap()[0].container, "c");
    assert_eq!(client.status().unwrap().pods, 1);
    assert_eq!(client.pods().unwrap().len(), 1);
    drop(client);
    thread.join().unwrap();
}

#[test]
fn an_answer_of_a_megabyte_arrives_whole() {
    let (_dir, path, _) = server(|_| {
        let pod = serde_json::to_string(&Pod {
            container: "c".repeat(100),
            ..Pod::default()
        })
        .unwrap();
        let pods = vec![pod; 5000].join(",");
        Some(format!("{{\"version\":1,\"answer\":[{pods}]}}\n").into_bytes())
    });
    let mut client = Client::connect(&path, PATIENCE).unwrap();
    assert_eq!(client.pods().unwrap().len(), 5000);
}

#[rstest]
#[case(b"{\"version\":1,\"error\":\"not yet\"}\n", "not yet")]
#[case(b"{\"version\":1}\n", "said nothing")]
#[case(b"beer\n", "can't be understood")]
#[case(
    b"{\"version\":1,\"answer\":{\"pods\":\"many\"}}\n",
    "can't be understood"
)]
fn what_is_no_answer_is_told(#[case] answer: &'static [u8], #[case] part: &str) {
    let (_dir, path, _) = server(|_| Some(answer.to_vec()));
    let mut client = Client::connect(&path, PATIENCE).unwrap();
    let error = client.status().unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

#[test]
fn an_answer_without_end_is_refused() {
    let (_dir, path, _) = server(|_| Some(vec![b' '; MAX_ANSWER_BYTES + 100_000]));
    let mut client = Client::connect(&path, PATIENCE).unwrap();
    let error = client.status().unwrap_err();
    assert!(
        matches!(&error, ClientError::Broken { source, .. } if source.kind() == ErrorKind::InvalidData),
        "{error:?}"
    );
}

#[test]
fn a_server_that_says_nothing_is_waited_for_no_longer_than_wanted() {
    let (_dir, path, _) = server(|_| Some(Vec::new()));
    let mut client = Client::connect(&path, IMPATIENCE).unwrap();
    let started = Instant::now();
    let error = client.status().unwrap_err();
    assert!(matches!(error, ClientError::Late { .. }), "{error:?}");
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn a_server_that_hangs_up_is_told() {
    let (_dir, path, _) = server(|_| None);
    let mut client = Client::connect(&path, PATIENCE).unwrap();
    let error = client.status().unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error:?}");
}

#[test]
fn nobody_there_is_told_with_what_to_do() {
    let error = Client::connect(Path::new("/nonexistent/s"), PATIENCE).unwrap_err();
    assert!(
        error.to_string().contains("is headcni-daemon running"),
        "{error}"
    );
}
