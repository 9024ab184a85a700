//! A device that the poller serves, from its opening to the end, also if it is removed and comes
//! back.

use anyhow::{Context, Error, Result, anyhow};
use fanpcap_linux::interface;
use fanpcap_linux::process::cpu;
use fanpcap_linux::wait::{self, Wake, clock, stop};
use fanpcap_nic::cpus::Choice;
use fanpcap_poller::device::{Device, Together};
use fanpcap_poller::queue::{Idle, Queue};
use fanpcap_poller::server::Server;
use fanpcap_poller::{Accounts, SourceError};
use fanpcap_snapshot::HostUse;
use fanpcap_terminal::streams;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::opening::{self, Taken};
use super::options::Options;
use super::place::Place;
use super::privileges;
use super::socket::Name;
use super::tags::KeptTags;
use super::totals::Totals;

/// How often to look at the queues' states, and how soon to look again for a removed device.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_NS: u64 = 1_000_000_000;

/// A device that is open. The fields are dropped in this order: the name first, so that newcomers
/// find no poller in the place of one that ends; the device's setting last.
struct Open {
    _name: Name,
    server: Server,
    /// Closed after the server's sources.
    _last: Vec<OwnedFd>,
    _tags: Option<KeptTags>,
    ifindex: u32,
}

/// A device, and what the poller needs to open it again.
pub(super) struct Served<'a> {
    place: &'a Place,
    /// The number of queues of the devices before this one on the command line.
    before: usize,
    options: &'a Options,
    together: &'a Together,
    wake: &'a Wake,
    open: Option<Open>,
    totals: Totals,
    host_use: HostUse,
    /// The last report about the device, so that each report is made once.
    reported: Option<String>,
}

const GONE: &str = "the device was removed: its members' reads end, and it is served again when it \
                    is back";

/// DPDK opens a device only with capabilities and system calls that the poller has given up.
const GONE_FOR_EVER: &str = "the device was removed: its members' reads end; start the poller again \
                             when it is back";

/// The state of a device's queues.
enum State {
    Receives,
    /// The reason why no packets come, for as long as it lasts.
    Waits(String),
    Gone,
}

impl<'a> Served<'a> {
    /// Opens the device, and listens for its members.
    ///
    /// # Errors
    /// Why the device can't be served, and what to do.
    pub(super) fn start(
        place: &'a Place,
        before: usize,
        (options, together): (&'a Options, &'a Together),
        wake: &'a Wake,
    ) -> Result<Self> {
        Ok(Self {
            open: Some(open(place, before, options, together)?),
            place,
            before,
            options,
            together,
            wake,
            totals: Totals::new(place),
            host_use: HostUse::default(),
            reported: None,
        })
    }

    /// The number of the device's queues.
    pub(super) fn queues(&self) -> usize {
        let device = self.open.as_ref().map(|it| it.server.device());
        device.map_or(0, |device| device.queues().len())
    }

    /// Serves the device until the command is to end. Returns what the device's queues have
    /// counted.
    ///
    /// # Errors
    /// The server or a queue's thread has failed.
    pub(super) fn run(mut self) -> Result<Totals> {
        let mut looked_ns = clock::monotonic_ns();
        while !stop::is_requested() {
            let Some(open) = &mut self.open else {
                self.open_again();
                continue;
            };
            let turned = open.server.turn(Some(self.wake), LOOK);
            turned.with_context(|| format!("{}: waiting for members", self.place))?;
            let now_ns = clock::monotonic_ns();
            if now_ns.saturating_sub(looked_ns) >= LOOK_NS {
                looked_ns = now_ns;
                self.look()?;
            }
        }
        self.close()?;
        Ok(self.totals)
    }

    /// Reports a change of the device's state. Closes a device that was removed.
    fn look(&mut self) -> Result<()> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let ifindex = open.ifindex;
        let what = match state(open.server.device(), self.place)? {
            State::Receives => self.stolen(ifindex),
            State::Waits(why) => Some(why),
            State::Gone => {
                self.close()?;
                let why = match self.place.kind.has_interface() {
                    true => GONE,
                    false => GONE_FOR_EVER,
                };
                Some(why.to_owned())
            }
        };
        self.report(what);
        Ok(())
    }

    /// Why the host may need the packets that it does not get.
    fn stolen(&mut self, ifindex: u32) -> Option<String> {
        if !self.options.minds_the_host(self.place) {
            return None;
        }
        let found = self.host_use.look(BTreeSet::from([ifindex]));
        let why = found.get(&ifindex)?;
        Some(format!(
            "the packets are stolen from the host, which may need them: {why}"
        ))
    }

    /// Reports what is wrong with the device, unless that was the last report.
    fn report(&mut self, what: Option<String>) {
        if self.reported == what {
            return;
        }
        let last = self.reported.take().unwrap_or_default();
        let text = what.clone().unwrap_or(format!("no longer: {last}"));
        streams::note(&format!("fanpcap: {}: {text}\n", self.place));
        self.reported = what;
    }

    /// Opens a device that is back. Waits if it is not.
    fn open_again(&mut self) {
        let is_back = || interface::index(&self.place.device).is_some();
        if self.place.kind.has_interface() && is_back() {
            match open(self.place, self.before, self.options, self.together) {
                Ok(open) => {
                    self.open = Some(open);
                    self.reported = None;
                    return;
                }
                Err(error) => self.report(Some(streams::words(&error))),
            }
        }
        // An error of poll(2) makes no difference: the loop comes back.
        let _ = wait::wait(None, Some(self.wake), Some(LOOK));
    }

    /// Closes the device, and adds what its queues have counted.
    fn close(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            self.totals.add_sent(open.server.device().sent());
            let counts = open.server.device().finish();
            let (queues, groups) = counts.ok_or_else(|| ended(self.place))?;
            self.totals.add(&queues, &groups);
        }
        Ok(())
    }
}

/// Opens a device, and listens for its members.
fn open(place: &Place, before: usize, options: &Options, together: &Together) -> Result<Open> {
    let Taken {
        name,
        tags,
        ifindex,
        hardware,
        sources,
        sender,
        way,
        last,
    } = opening::take(place, options)?;
    let cpus = options.cpus(place, before, sources.len())?;
    let queues = sources.into_iter().zip(&cpus.cpus).map(|(source, cpu)| {
        let cpu = *cpu;
        Queue::start(source, options.idle, move || prepare(cpu))
    });
    let queues: std::io::Result<Vec<Queue>> = queues.collect();
    let queues = queues.with_context(|| format!("{place}: a thread for a receive queue"))?;
    let device = Device::new(queues, ifindex, hardware, options.policy);
    let device = device.with_context(|| place.to_string())?;
    let device = device.beside(together, &place.to_string());
    let device = device.context("eventfd")?;
    let device = device.with_accounts(Accounts::of_machine());
    let mut device = device.with_access(options.access(place));
    if let Some(sender) = sender {
        device = device.sending(sender);
    }
    // Last: a server that ends first accepts all that have connected.
    let listener = name.listen(options.group, options.all_may_connect())?;
    let server = Server::new(listener, device);
    if !options.is_quiet {
        let queues = server.device().queues().len();
        streams::note(&ready(place, queues, &way, &cpus, options, &name));
    }
    Ok(Open {
        _name: name,
        server,
        _last: last,
        _tags: tags,
        ifindex,
    })
}

/// Prepares the thread of a receive queue: it drops capabilities, and stays on its CPU. The CPU was
/// one of the allowed ones.
fn prepare(cpu: Option<usize>) {
    if let Err(error) = privileges::keep_for_queue() {
        streams::note(&format!(
            "fanpcap: a thread has capabilities left: {error}\n"
        ));
    }
    if let Some(cpu) = cpu {
        if let Err(error) = cpu::pin(cpu) {
            streams::note(&format!(
                "fanpcap: a thread can't stay on CPU {cpu}: {error}\n"
            ));
        }
    }
}

/// The line about a device that is served.
fn ready(
    place: &Place,
    queues: usize,
    way: &str,
    cpus: &Choice,
    options: &Options,
    name: &Name,
) -> String {
    let plural = if queues == 1 { "" } else { "s" };
    let idle = match options.idle {
        Idle::Spin => ", always looking for packets",
        Idle::Sleep => "",
    };
    let host = match place.kind.steals() {
        true => "; the host gets none of the packets that the device receives",
        false => "",
    };
    format!(
        "fanpcap: serving {place} ({way}) on {}: {queues} queue{plural}, {}{idle}{host}\n",
        name.path().display(),
        cpus.why
    )
}

/// The state of a device's queues: the first one that is not usual.
fn state(device: &Device, place: &Place) -> Result<State> {
    for queue in device.queues() {
        let state = queue.change(|queue| state_of(queue.state().1.err()));
        match state.ok_or_else(|| ended(place))? {
            State::Receives => {}
            state @ (State::Waits(_) | State::Gone) => return Ok(state),
        }
    }
    Ok(State::Receives)
}

fn ended(place: &Place) -> Error {
    anyhow!("{place}: the thread of a receive queue has ended")
}

fn state_of(error: Option<&SourceError>) -> State {
    match error {
        None => State::Receives,
        Some(SourceError::Gone) => State::Gone,
        Some(error) => State::Waits(format!("no packets come: {error}")),
    }
}
