use rstest::rstest;

use super::*;
use crate::event::EventPod;

fn parse(line: &str) -> Result<Request, RequestError> {
    Request::parse(line.as_bytes())
}

#[test]
fn every_question_reads_back_as_it_was_written() {
    for ask in Ask::ALL {
        let line = Request::ask_line(ask);
        assert_eq!(
            String::from_utf8(line.clone()).unwrap(),
            format!("{{\"version\":1,\"ask\":\"{ask}\"}}\n")
        );
        assert_eq!(Request::parse(&line).unwrap(), Request::Ask(ask));
        assert_eq!(
            serde_json::to_value(ask).unwrap(),
            ask.as_str(),
            "serde and as_str must agree"
        );
    }
}

#[test]
fn an_event_reads_back_as_it_was_written() {
    let event = Event {
        verb: "ADD".to_owned(),
        container: "line\nbreak".to_owned(),
        ips: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        pod: Some(EventPod {
            namespace: "web".to_owned(),
            name: "web-0".to_owned(),
            uid: None,
        }),
        code: Some(11),
        ..Event::default()
    };
    let line = Request::event_line(&event).unwrap();
    assert_eq!(
        line.split(|byte| *byte == b'\n').count(),
        2,
        "one end of a line, and nothing behind it"
    );
    assert_eq!(
        Request::parse(&line).unwrap(),
        Request::Event(Box::new(event))
    );
}

#[test]
fn an_event_longer_than_a_line_is_not_written() {
    let of = |length| Event {
        container: "x".repeat(length),
        ..Event::default()
    };
    assert!(Request::event_line(&of(MAX_REQUEST_BYTES / 2)).is_some());
    assert!(Request::event_line(&of(MAX_REQUEST_BYTES)).is_none());
}

#[rstest]
#[case("", "one line of JSON")]
#[case("GET / HTTP/1.1", "one line of JSON")]
#[case("[]", "one line of JSON")]
#[case("{}", "one line of JSON")]
#[case(r#"{"version":-1,"ask":"status"}"#, "one line of JSON")]
#[case(r#"{"version":1,"event":5}"#, "one line of JSON")]
#[case(r#"{"version":1}"#, "either an event or an ask")]
#[case(
    r#"{"version":1,"ask":"status","event":{}}"#,
    "either an event or an ask"
)]
#[case(r#"{"version":1,"ask":"beer"}"#, "\"beer\" is none of status")]
#[case(
    r#"{"version":99,"ask":{"new":"form"}}"#,
    "version 99 is not spoken here, only up to 1"
)]
fn what_is_no_request_is_refused_with_a_reason(#[case] line: &str, #[case] part: &str) {
    let error = parse(line).unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

#[test]
fn unknown_keys_are_ignored() {
    let request = parse(r#"{"version":1,"ask":"pods","since":"yesterday"}"#).unwrap();
    assert_eq!(request, Request::Ask(Ask::Pods));
}

#[test]
fn an_answer_stands_under_its_key_and_an_error_under_another() {
    let text = |answer| String::from_utf8(answer_line(answer)).unwrap();
    let none = Answer::Pods(Vec::new());
    assert_eq!(text(Ok(&none)), "{\"version\":1,\"answer\":[]}\n");
    assert_eq!(
        text(Err("not now")),
        "{\"version\":1,\"error\":\"not now\"}\n"
    );
}

#[test]
fn an_answer_without_end_becomes_an_error() {
    let pods = vec![
        Pod {
            container: "c".repeat(1 << 20),
            ..Pod::default()
        };
        20
    ];
    let line = answer_line(Ok(&Answer::Pods(pods)));
    assert_eq!(
        line,
        b"{\"version\":1,\"error\":\"the answer is too long to be sent\"}\n"
    );
}

#[test]
fn what_a_newer_daemon_says_is_no_error() {
    let pod: Pod = serde_json::from_str(r#"{"state":"frozen","colour":"red"}"#).unwrap();
    assert_eq!(pod.state, PodState::Unknown);
    let route: Route = serde_json::from_str(r#"{"dst":"10.0.0.0/8","kind":"prohibit"}"#).unwrap();
    assert_eq!(route.kind, RouteKind::Other);
}

#[test]
fn the_spool_is_beside_the_socket() {
    let socket = std::path::Path::new(crate::paths::DAEMON_SOCKET);
    let spool = std::path::Path::new(crate::paths::EVENT_SPOOL);
    assert_eq!(socket.with_file_name(SPOOL_NAME), spool);
}
