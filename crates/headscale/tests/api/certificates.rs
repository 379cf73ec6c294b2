//! Certificates that no server of ours would have: of another time, or their own authority.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use headscale::{Client, Problem, Proxies, Settings, TlsFault};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SanType, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, Stream};
use tempfile::NamedTempFile;

/// How the only certificate is.
struct Own {
    /// What it is for.
    address: IpAddr,
    /// Where its server is.
    listen: IpAddr,
    is_ca: bool,
    years: (i32, i32),
}

const GOOD: Own = Own {
    address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
    is_ca: true,
    years: (2020, 2090),
};

/// Answers each connection with a healthy server's words; its certificate is in the file.
fn serve(own: &Own) -> (SocketAddr, NamedTempFile) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names = vec![SanType::IpAddress(own.address)];
    params.not_before = date_time_ymd(own.years.0, 1, 1);
    params.not_after = date_time_ymd(own.years.1, 1, 1);
    if own.is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(certificate.pem().as_bytes()).unwrap();

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind((own.listen, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(config);
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut tcp = tcp.unwrap();
            let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = Stream::new(&mut tls, &mut tcp);
            let body = r#"{"status":"pass"}"#;
            let length = body.len();
            // A client that does not trust us is gone by now.
            if stream.read(&mut [0; 4096]).is_ok() {
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:";
                let head = format!("{head} {length}\r\n\r\n");
                let _ = stream.write_all(format!("{head}{body}").as_bytes());
            }
        }
    });
    (address, file)
}

fn client(address: SocketAddr, ca_file: &NamedTempFile) -> Client {
    let settings = Settings {
        url: format!("https://{address}"),
        api_key: None,
        ca_file: Some(ca_file.path().to_owned()),
        timeout: Duration::from_secs(10),
        proxies: Proxies::none(),
    };
    Client::new(&settings).unwrap()
}

async fn outcome(address: SocketAddr, ca_file: &NamedTempFile) -> Result<(), TlsFault> {
    health(&client(address, ca_file)).await
}

async fn health(client: &Client) -> Result<(), TlsFault> {
    match client.health().await {
        Ok(()) => Ok(()),
        Err(error) => match error.problem() {
            Problem::Tls { why, .. } => Err(*why),
            other => panic!("no problem of TLS: {other:?}"),
        },
    }
}

#[tokio::test]
async fn a_server_may_be_its_own_authority() {
    for is_ca in [true, false] {
        let (address, file) = serve(&Own { is_ca, ..GOOD });
        assert_eq!(outcome(address, &file).await, Ok(()), "CA: {is_ca}");
    }
}

#[tokio::test]
async fn another_authority_of_the_same_kind_is_not_trusted() {
    let (_, other) = serve(&GOOD);
    for (is_ca, fault) in [
        (true, TlsFault::Authority),
        (false, TlsFault::UnknownAuthority),
    ] {
        let (address, _) = serve(&Own { is_ca, ..GOOD });
        assert_eq!(outcome(address, &other).await, Err(fault));
    }
}

#[tokio::test]
async fn a_file_of_authorities_that_was_replaced_is_read_again() {
    let (address, new) = serve(&GOOD);
    let (_, old) = serve(&GOOD);
    let client = client(address, &old);
    assert_eq!(health(&client).await, Err(TlsFault::Authority));
    // As long as it has no other, or nothing of use, nothing changes.
    assert_eq!(health(&client).await, Err(TlsFault::Authority));
    old.as_file().set_len(0).unwrap();
    assert_eq!(health(&client).await, Err(TlsFault::Authority));
    fs::copy(new.path(), old.path()).unwrap();
    assert_eq!(health(&client).await, Ok(()));
    // Whoever got in by it stays in.
    assert_eq!(health(&client.clone()).await, Ok(()));
}

#[tokio::test]
async fn its_name_and_its_time_count_all_the_same() {
    for is_ca in [true, false] {
        for (years, fault) in [
            ((2020, 2021), TlsFault::Expired),
            ((2089, 2090), TlsFault::NotYetValid),
        ] {
            let (address, file) = serve(&Own {
                is_ca,
                years,
                ..GOOD
            });
            assert_eq!(outcome(address, &file).await, Err(fault));
        }
        let (address, file) = serve(&Own {
            is_ca,
            address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
            ..GOOD
        });
        assert_eq!(outcome(address, &file).await, Err(TlsFault::WrongName));
    }
}

#[tokio::test]
async fn an_ipv6_address_is_a_name_as_well() {
    let (address, listen) = (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    let (address, file) = serve(&Own {
        address,
        listen,
        ..GOOD
    });
    assert_eq!(outcome(address, &file).await, Ok(()));
}
