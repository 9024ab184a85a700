//! Members of an etcd: Debian's etcd-server, on addresses of the calling namespace.

use std::env;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::await_for::{LIMIT, await_for};
use crate::member;
use crate::scratch::Scratch;

/// The members of one etcd. Dropping them kills them, also those that are stopped.
#[derive(Debug)]
pub struct Etcd {
    directory: Scratch,
    /// Arguments that all members have.
    arguments: Vec<String>,
    scheme: &'static str,
    /// Each member's address.
    hosts: Vec<Ipv4Addr>,
    members: Vec<Option<Child>>,
}

impl Etcd {
    /// Starts `count` members on loopback addresses, with these further arguments, and waits until
    /// they have a leader.
    ///
    /// # Errors
    /// There is no etcd here, which is said as SKIP; or the members have no leader in time.
    pub fn start(count: usize, arguments: &[&str]) -> Result<Self> {
        let hosts = (1..).map(|last| Ipv4Addr::new(127, 0, 0, last));
        Self::start_on(&hosts.take(count).collect::<Vec<_>>(), arguments)
    }

    /// The same, with a member on each of these addresses, which other hosts may reach.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub fn start_on(hosts: &[Ipv4Addr], arguments: &[&str]) -> Result<Self> {
        needs_etcd()?;
        let mut etcd = Self {
            directory: Scratch::new()?,
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
            scheme: match arguments.iter().any(|text| text.starts_with("--cert-file")) {
                true => "https",
                false => "http",
            },
            hosts: hosts.to_vec(),
            members: Vec::new(),
        };
        etcd.members.resize_with(hosts.len(), || None);
        for index in 0..hosts.len() {
            etcd.restart(index)?;
        }
        etcd.await_leader()?;
        Ok(etcd)
    }

    /// Where the member serves clients.
    pub fn endpoint(&self, index: usize) -> String {
        format!("{}://{}:2379", self.scheme, self.hosts[index])
    }

    /// Where all members serve clients.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|i| self.endpoint(i)).collect()
    }

    /// Starts a member that does not run, with the data that it had.
    ///
    /// # Errors
    /// It can't be started.
    pub fn restart(&mut self, index: usize) -> Result<()> {
        let name = |index: usize| format!("m{index}");
        let peer = |index: usize| format!("http://{}:2380", self.hosts[index]);
        let peers = (0..self.members.len()).map(|i| format!("{}={}", name(i), peer(i)));
        let log = self.directory.file(&format!("{}.log", name(index)));
        let log = File::options().create(true).append(true).open(log)?;
        let child = Command::new(program("etcd"))
            .args(["--name", &name(index)])
            .arg("--data-dir")
            .arg(self.directory.file(&name(index)))
            .args(["--listen-client-urls", &self.endpoint(index)])
            .args(["--advertise-client-urls", &self.endpoint(index)])
            .args(["--listen-peer-urls", &peer(index)])
            .args(["--initial-advertise-peer-urls", &peer(index)])
            .args(["--initial-cluster", &peers.collect::<Vec<_>>().join(",")])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting etcd")?;
        self.members[index] = Some(child);
        Ok(())
    }

    /// Kills a member.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        let mut child = self.members[index].take().context("it does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Sends a signal, such as STOP or CONT, to a member.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal(&self, index: usize, name: &str) -> Result<()> {
        let child = self.members[index].as_ref().context("it does not run")?;
        member::signal(child.id(), name)
    }

    /// Which member leads.
    ///
    /// # Errors
    /// None does, for long.
    pub fn leader(&self) -> Result<usize> {
        await_for("a leader of etcd", LIMIT, || {
            Ok((0..self.members.len()).find(|index| self.leads(*index)))
        })
    }

    fn leads(&self, index: usize) -> bool {
        let status = self.ctl_of(&[index], &["endpoint", "status", "--write-out=json"]);
        let Ok(status) = status else { return false };
        let field = |name: &str| {
            let (_, rest) = status.split_once(&format!("\"{name}\":"))?;
            rest.split([',', '}']).next().map(str::to_owned)
        };
        field("leader").is_some_and(|leader| Some(leader) == field("member_id"))
    }

    /// Waits until all members serve.
    ///
    /// # Errors
    /// They do not in time.
    pub fn await_leader(&self) -> Result<()> {
        self.await_leader_of(&Vec::from_iter(0..self.members.len()))
    }

    /// Waits until these members serve.
    ///
    /// # Errors
    /// They do not in time.
    pub fn await_leader_of(&self, members: &[usize]) -> Result<()> {
        await_for("etcd to serve", LIMIT, || {
            Ok(self.ctl_of(members, &["endpoint", "health"]).ok())
        })
        .map(drop)
    }

    /// Runs etcdctl with all endpoints, and returns what it prints.
    ///
    /// # Errors
    /// It fails; the error has its own words.
    pub fn ctl(&self, arguments: &[&str]) -> Result<String> {
        self.run_ctl(&self.endpoints().join(","), arguments)
    }

    /// Runs etcdctl with the endpoints of these members, and returns what it prints.
    ///
    /// # Errors
    /// It fails; the error has its own words.
    pub fn ctl_of(&self, members: &[usize], arguments: &[&str]) -> Result<String> {
        let endpoints = members.iter().map(|index| self.endpoint(*index));
        self.run_ctl(&endpoints.collect::<Vec<_>>().join(","), arguments)
    }

    /// What `etcdctl elect --listen` says of an election in its first second.
    ///
    /// # Errors
    /// etcdctl can't be started.
    pub fn observe(&self, election: &str) -> Result<String> {
        let done = Command::new("timeout")
            .arg("1")
            .arg(program("etcdctl"))
            .args(["--endpoints", &self.endpoints().join(",")])
            .args(["elect", "--listen", election])
            .env("ETCDCTL_API", "3")
            .output()?;
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    fn run_ctl(&self, endpoints: &str, arguments: &[&str]) -> Result<String> {
        let done = Command::new(program("etcdctl"))
            .env("ETCDCTL_API", "3")
            .args(["--command-timeout=5s", "--endpoints", endpoints])
            .args(self.client_arguments())
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("starting etcdctl")?;
        if !done.status.success() {
            let error = String::from_utf8_lossy(&done.stderr);
            bail!("etcdctl {}: {}", arguments.join(" "), error.trim());
        }
        Ok(String::from_utf8(done.stdout)?)
    }

    /// The members' certificates serve etcdctl too.
    fn client_arguments(&self) -> Vec<String> {
        let given = |from: &str, to: &str| {
            let found = self
                .arguments
                .iter()
                .find_map(|text| text.strip_prefix(from));
            found.map(|path| format!("{to}{path}"))
        };
        [
            given("--trusted-ca-file=", "--cacert="),
            given("--cert-file=", "--cert="),
            given("--key-file=", "--key="),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// What a member has logged.
    ///
    /// # Errors
    /// Its log can't be read.
    pub fn log(&self, index: usize) -> Result<String> {
        Ok(fs::read_to_string(
            self.directory.file(&format!("m{index}.log")),
        )?)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for child in self.members.iter_mut().flatten() {
            // A child that has ended already is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program of etcd's: of the system's, or in the directory that `FANPCAP_ETCD_DIR` names.
fn program(name: &str) -> PathBuf {
    let directory = env::var_os("FANPCAP_ETCD_DIR").unwrap_or_else(|| "/usr/bin".into());
    PathBuf::from(directory).join(name)
}

/// Goes on where there are etcd and etcdctl.
///
/// # Errors
/// After it has said SKIP: the test counts as skipped, however it ends.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
fn needs_etcd() -> Result<()> {
    for path in ["etcd", "etcdctl"].map(program) {
        if !path.exists() {
            let path = path.display();
            println!("SKIP: no {path} here (etcd-server, etcd-client)");
            bail!("no {path}");
        }
    }
    ensure!(
        fanpcap_linux::process::effective_user() == 0,
        "needs root: addresses in a namespace of its own"
    );
    Ok(())
}
