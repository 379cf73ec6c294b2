use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use daemon::admin::{AdminError, LIMITS, Server};
use node_config::Monitoring;
use tokio_util::sync::CancellationToken;

use crate::server::{Admin, closed, local};

#[test]
fn it_stops_within_a_second_whatever_clients_do() {
    let admin = Admin::new();
    let address = admin.address;
    let mut clients = [admin.connect(), admin.connect(), admin.connect()];
    clients[1]
        .write_all(b"GET /metrics HTTP/1.1\r\nHost")
        .unwrap();
    clients[2]
        .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .unwrap();
    // The server has accepted all of them when it answers a later one.
    assert_eq!(admin.get("/healthz").status, 200);
    let took = admin.stop();
    assert!(took < Duration::from_secs(1), "{took:?}");
    for client in &mut clients {
        closed(client, Instant::now());
    }
    TcpListener::bind(address).expect("the address is free again");
}

#[test]
fn it_stops_while_a_profile_is_taken() {
    let admin = Admin::with(local(true), LIMITS);
    let mut asking = admin.connect();
    asking
        .write_all(b"GET /debug/pprof/profile?seconds=60 HTTP/1.1\r\n\r\n")
        .unwrap();
    assert_eq!(admin.get("/healthz").status, 200);
    assert!(admin.stop() < Duration::from_secs(5));
}

fn start_error(address: SocketAddr) -> AdminError {
    let admin = Admin::new();
    let monitoring = Monitoring {
        address,
        ..Monitoring::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let shutdown = CancellationToken::new();
    let start = Server::start(&monitoring, admin.context.clone(), LIMITS, &shutdown);
    runtime.block_on(start).unwrap_err()
}

#[test]
fn an_address_in_use_is_an_error_with_its_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = start_error(taken.local_addr().unwrap());
    assert!(error.is_temporary());
    let text = error.to_string();
    assert!(
        text.contains(&taken.local_addr().unwrap().to_string())
            && text.contains("monitoring.address"),
        "{text}"
    );
}

#[test]
fn an_address_of_another_machine_is_an_error_with_its_remedy() {
    // https://www.rfc-editor.org/rfc/rfc5737: no machine has it.
    let error = start_error("192.0.2.1:9844".parse().unwrap());
    assert!(error.is_temporary());
    assert!(
        error.to_string().contains("no interface has this address"),
        "{error}"
    );
}
