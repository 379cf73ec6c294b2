//! Certificates that are self-signed, expired, or for another name.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use headscale::{Client, ClientOptions, ErrorKind, Proxies, TlsError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SanType, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, Stream};
use tempfile::NamedTempFile;

/// A self-signed certificate and its server.
struct SelfSigned {
    /// The subject alternative name.
    address: IpAddr,
    listen: IpAddr,
    is_ca: bool,
    years: (i32, i32),
}

const GOOD: SelfSigned = SelfSigned {
    address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
    is_ca: true,
    years: (2020, 2090),
};

/// Starts a server that answers every request as healthy. Returns a file with its certificate.
fn serve(certificate: &SelfSigned) -> (SocketAddr, NamedTempFile) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names = vec![SanType::IpAddress(certificate.address)];
    params.not_before = date_time_ymd(certificate.years.0, 1, 1);
    params.not_after = date_time_ymd(certificate.years.1, 1, 1);
    if certificate.is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = KeyPair::generate().unwrap();
    let signed = params.self_signed(&key).unwrap();
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(signed.pem().as_bytes()).unwrap();

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind((certificate.listen, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(config);
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut tcp = tcp.unwrap();
            let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = Stream::new(&mut tls, &mut tcp);
            let body = r#"{"status":"pass"}"#;
            let length = body.len();
            // A client that rejects the certificate has closed the connection.
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
    let options = ClientOptions {
        url: format!("https://{address}"),
        api_key: None,
        ca_file: Some(ca_file.path().to_owned()),
        timeout: Duration::from_secs(10),
        proxies: Proxies::none(),
    };
    Client::new(&options).unwrap()
}

async fn outcome(address: SocketAddr, ca_file: &NamedTempFile) -> Result<(), TlsError> {
    health(&client(address, ca_file)).await
}

async fn health(client: &Client) -> Result<(), TlsError> {
    match client.health().await {
        Ok(()) => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::Tls { cause, .. } => Err(*cause),
            other => panic!("not a TLS error: {other:?}"),
        },
    }
}

#[tokio::test]
async fn a_self_signed_certificate_in_the_ca_file_is_trusted() {
    for is_ca in [true, false] {
        let (address, file) = serve(&SelfSigned { is_ca, ..GOOD });
        assert_eq!(outcome(address, &file).await, Ok(()), "CA: {is_ca}");
    }
}

#[tokio::test]
async fn a_self_signed_certificate_outside_the_ca_file_is_rejected() {
    let (_, other) = serve(&GOOD);
    for (is_ca, error) in [
        (true, TlsError::CaCertificate),
        (false, TlsError::UnknownIssuer),
    ] {
        let (address, _) = serve(&SelfSigned { is_ca, ..GOOD });
        assert_eq!(outcome(address, &other).await, Err(error));
    }
}

#[tokio::test]
async fn a_replaced_ca_file_is_reloaded_after_a_tls_error() {
    let (address, new) = serve(&GOOD);
    let (_, old) = serve(&GOOD);
    let client = client(address, &old);
    assert_eq!(health(&client).await, Err(TlsError::CaCertificate));
    // Nothing changes while the file is the same or has no certificate.
    assert_eq!(health(&client).await, Err(TlsError::CaCertificate));
    old.as_file().set_len(0).unwrap();
    assert_eq!(health(&client).await, Err(TlsError::CaCertificate));
    fs::copy(new.path(), old.path()).unwrap();
    assert_eq!(health(&client).await, Ok(()));
    // Clones share the reloaded certificates.
    assert_eq!(health(&client.clone()).await, Ok(()));
}

#[tokio::test]
async fn the_name_and_validity_of_a_self_signed_certificate_are_checked() {
    for is_ca in [true, false] {
        for (years, error) in [
            ((2020, 2021), TlsError::Expired),
            ((2089, 2090), TlsError::NotYetValid),
        ] {
            let (address, file) = serve(&SelfSigned {
                is_ca,
                years,
                ..GOOD
            });
            assert_eq!(outcome(address, &file).await, Err(error));
        }
        let (address, file) = serve(&SelfSigned {
            is_ca,
            address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
            ..GOOD
        });
        assert_eq!(outcome(address, &file).await, Err(TlsError::WrongName));
    }
}

#[tokio::test]
async fn an_ipv6_address_is_a_valid_name() {
    let (address, listen) = (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    let (address, file) = serve(&SelfSigned {
        address,
        listen,
        ..GOOD
    });
    assert_eq!(outcome(address, &file).await, Ok(()));
}
