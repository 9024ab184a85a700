//! TLS: both sides have certificates. New certificates are loaded while the client runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_etcd::{Client, Failure, Keys, Limits, Settings, SetupError, TlsFiles};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Etcd, Scratch, netns};

use crate::calls::Unconditional as _;
use crate::cluster::TTL;

/// Certificates made by openssl.
struct Authority {
    directory: Scratch,
}

impl Authority {
    fn new() -> Result<Self> {
        let authority = Self {
            directory: Scratch::new()?,
        };
        authority.make_ca("ca")?;
        authority.make_ca("other")?;
        Ok(authority)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.file(name)
    }

    fn make_ca(&self, name: &str) -> Result<()> {
        let [key, certificate] = [self.file(&format!("{name}.key")), self.file(name)];
        openssl(&[
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj",
            &format!(
                "/CN={name} -keyout {} -out {}",
                key.display(),
                certificate.display()
            ),
        ])
    }

    /// Makes a certificate for etcd's members and for clients. It has both purposes, because etcd's
    /// gateway calls etcd with a member's certificate.
    fn make(&self, ca: &str, name: &str) -> Result<()> {
        let path = |name: String| self.file(&name).display().to_string();
        let extensions = self.directory.write(
            "extensions",
            "subjectAltName=IP:127.0.0.1,IP:127.0.0.2,IP:127.0.0.3\n\
             extendedKeyUsage=serverAuth,clientAuth\n",
        )?;
        let key = path(format!("{name}.key"));
        let request = path(format!("{name}.csr"));
        openssl(&[
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj",
            &format!("/CN={name} -keyout {key} -out {request}"),
        ])?;
        let [ca, ca_key] = [path(ca.to_owned()), path(format!("{ca}.key"))];
        openssl(&[
            &format!("x509 -req -in {request} -CA {ca} -CAkey {ca_key} -CAcreateserial -days 2"),
            &format!(
                "-extfile {} -out {}",
                extensions.display(),
                path(name.to_owned())
            ),
        ])
    }
}

fn openssl(arguments: &[&str]) -> Result<()> {
    let words = arguments.iter().flat_map(|text| text.split_whitespace());
    let done = Command::new("openssl").args(words).output();
    let done = done.context("starting openssl")?;
    let error = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "openssl {arguments:?}: {error}");
    Ok(())
}

fn settings(etcd: &Etcd, ca: &Path, own: &Path) -> Result<Settings> {
    let key = PathBuf::from(format!("{}.key", own.display()));
    Ok(Settings {
        tls: Some(TlsFiles {
            ca: ca.to_owned(),
            own: Some((own.to_owned(), key)),
        }),
        limits: Limits {
            call: Duration::from_secs(1),
            ..Limits::default()
        },
        ..crate::calls::settings(etcd)?
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn both_sides_prove_who_they_are_and_new_certificates_are_taken() -> Result<()> {
    netns::within_new(|| {
        let authority = Authority::new()?;
        authority.make("ca", "server")?;
        authority.make("ca", "node")?;
        authority.make("other", "stranger")?;
        let file = |name: &str| authority.file(name).display().to_string();
        let etcd = Etcd::start(
            3,
            &[
                "--client-cert-auth",
                &format!("--trusted-ca-file={}", file("ca")),
                &format!("--cert-file={}", file("server")),
                &format!("--key-file={}", file("server.key")),
            ],
        )?;
        let [ca, other] = ["ca", "other"].map(|name| authority.file(name));
        let node = authority.file("node");
        let key = Keys::One(b"/k".to_vec());
        let client = Client::new(&settings(&etcd, &ca, &node)?)?;
        client.put(b"/k", b"1", 0)?;
        ensure!(client.watch(&key, 1)?.wait().is_ok());
        // The client refuses a member that it does not trust, and a member refuses a client that it
        // does not trust.
        let own = authority.file("stranger");
        let stranger = Client::new(&settings(&etcd, &ca, &own)?)?;
        // Any error is accepted, because the member's TLS alert may be lost when the member closes
        // the connection.
        ensure!(stranger.range(&key).is_err());
        let trusts_other = Client::new(&settings(&etcd, &other, &node)?)?;
        let refused = trusts_other.range(&key);
        let is_told = matches!(&refused, Err(error) if error.failure == Failure::Certificate);
        ensure!(is_told, "{refused:?}");
        let mut link = crate::cluster::node(&settings(&etcd, &other, &node)?, TTL, 1)?;
        ensure!((0..200).any(|_| link.poll(Duration::from_millis(100)).is_err()));
        // The stranger gets a certificate of the members' authority. The test writes the private
        // key before the certificate, so at first the two do not match.
        sleep(Duration::from_millis(1100));
        fs::copy(file("node.key"), file("stranger.key"))?;
        ensure!(stranger.range(&key).is_err());
        let pair = Client::new(&settings(&etcd, &ca, &own)?);
        ensure!(pair.is_err_and(|error| matches!(error, SetupError::Pair(..))));
        sleep(Duration::from_millis(1100));
        fs::copy(&node, &own)?;
        sleep(Duration::from_millis(1100));
        let served = || Ok(stranger.range(&key).ok());
        ensure!(await_for("an answer", LIMIT, served)?.kvs[0].value == b"1");
        // If a certificate's file is only partly written, the client keeps the old certificate.
        fs::write(&own, "")?;
        sleep(Duration::from_millis(1100));
        ensure!(await_for("an answer", LIMIT, served)?.kvs[0].value == b"1");
        ensure!(Client::new(&settings(&etcd, &ca, &own)?).is_err());
        Ok(())
    })
}
