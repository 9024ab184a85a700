//! Starts the members of an etcd in the calling thread's network namespace. The program is from
//! Debian's etcd-server.

use std::env;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::await_for::{LIMIT, await_for};
use crate::member;
use crate::scratch::Scratch;

/// The members of one etcd. Dropping this value kills all members, also those stopped by a signal.
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
    /// Starts `count` members on loopback addresses, with the additional `arguments`, and waits
    /// until they have a leader.
    ///
    /// # Errors
    /// etcd is not installed (the function prints SKIP), or the members have no leader in time.
    pub fn start(count: usize, arguments: &[&str]) -> Result<Self> {
        let hosts = (1..).map(|last| Ipv4Addr::new(127, 0, 0, last));
        Self::start_on(&hosts.take(count).collect::<Vec<_>>(), arguments)
    }

    /// Works like [`Etcd::start`], but starts a member on each of these addresses. Other hosts may
    /// reach these addresses.
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

    /// The URL at which a member serves clients.
    pub fn endpoint(&self, index: usize) -> String {
        format!("{}://{}:2379", self.scheme, self.hosts[index])
    }

    /// The URLs at which the members serve clients.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|i| self.endpoint(i)).collect()
    }

    /// Starts a member that does not run. A member that ran before keeps its data.
    ///
    /// # Errors
    /// The member can't be started.
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
    /// The member does not run.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        let mut child = self.members[index].take().context("member not running")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Sends a signal, such as STOP or CONT, to a member.
    ///
    /// # Errors
    /// The member does not run.
    pub fn signal(&self, index: usize, name: &str) -> Result<()> {
        let child = self.members[index].as_ref().context("member not running")?;
        member::signal(child.id(), name)
    }

    /// The number of the member that leads.
    ///
    /// # Errors
    /// No member leads within [`LIMIT`].
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

    /// Waits until all members serve clients.
    ///
    /// # Errors
    /// The members do not serve in time.
    pub fn await_leader(&self) -> Result<()> {
        self.await_leader_of(&Vec::from_iter(0..self.members.len()))
    }

    /// Waits until these members serve clients.
    ///
    /// # Errors
    /// The members do not serve in time.
    pub fn await_leader_of(&self, members: &[usize]) -> Result<()> {
        await_for("etcd to serve", LIMIT, || {
            Ok(self.ctl_of(members, &["endpoint", "health"]).ok())
        })
        .map(drop)
    }

    /// Runs etcdctl with all endpoints, and returns its output.
    ///
    /// # Errors
    /// etcdctl fails; the error has its message.
    pub fn ctl(&self, arguments: &[&str]) -> Result<String> {
        self.run_ctl(&self.endpoints().join(","), arguments)
    }

    /// Runs etcdctl with the endpoints of these members, and returns its output.
    ///
    /// # Errors
    /// etcdctl fails; the error has its message.
    pub fn ctl_of(&self, members: &[usize], arguments: &[&str]) -> Result<String> {
        let endpoints = members.iter().map(|index| self.endpoint(*index));
        self.run_ctl(&endpoints.collect::<Vec<_>>().join(","), arguments)
    }

    /// Runs `etcdctl elect --listen` on an election for one second, and returns the output.
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

    /// The arguments that make etcdctl use the members' certificates, if the members have any.
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

    /// The log of a member.
    ///
    /// # Errors
    /// The log can't be read.
    pub fn log(&self, index: usize) -> Result<String> {
        Ok(fs::read_to_string(
            self.directory.file(&format!("m{index}.log")),
        )?)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for child in self.members.iter_mut().flatten() {
            // These calls fail if the child has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The path of one of etcd's programs. The program is in the directory that `FANPCAP_ETCD_DIR`
/// names, or else in `/usr/bin`.
fn program(name: &str) -> PathBuf {
    let directory = env::var_os("FANPCAP_ETCD_DIR").unwrap_or_else(|| "/usr/bin".into());
    PathBuf::from(directory).join(name)
}

/// Checks that etcd and etcdctl are installed.
///
/// # Errors
/// One of the two programs is missing, or this process is not root. If a program is missing, this
/// function has printed SKIP, so the test counts as skipped, even if it fails.
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
