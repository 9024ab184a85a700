//! Simulated handles. Each handle records the calls to it, and returns what the test has set.

use fanpcap::handle::{ERROR, Joined, Life, Member, Notes, PartState, Return, Setting, System};
use fanpcap::request::Request;
use fanpcap_bpf::Classic;
use fanpcap_config::mode::ModeKind;
use fanpcap_config::settings::{Environment, Group, GroupChoice, OnEngine, Polled, Settings};
use fanpcap_config::steering::{PcapCompiler, Steering};
use fanpcap_group::identity::Stranger;
use fanpcap_group::join::{JoinError, Runs};
use fanpcap_group::record::NoFlow;
use fanpcap_group::rejecting::Rejections;
use fanpcap_group::steered::{Filtering, SteerError, Steered, Unchanging};
use fanpcap_linux::packet::Filter;
use fanpcap_nic::placing::{PlaceError, Until, Want};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The number of the poller of all devices.
pub(crate) const ONE_POLLER: u64 = 77;

/// Whether a group accepts a membership.
pub(crate) type Takes = fn(&GroupChoice) -> Result<(), JoinError>;

#[derive(Default)]
pub(crate) struct World {
    handles: RefCell<Vec<State>>,
    /// What was called, in order: the handle's index and the call.
    calls: RefCell<Vec<String>>,
    pub(crate) plans: Cell<usize>,
    /// Whether our reader is unable to read several devices together.
    pub(crate) is_not_ethernet: Cell<bool>,
}

/// One handle, and the results of its calls.
pub(crate) struct State {
    request: Option<Arc<Request>>,
    pub(crate) notes: Notes,
    others: usize,
    pub(crate) error: String,
    /// The result of the system's pcap_activate(), and its error text.
    pub(crate) activate: (c_int, &'static str),
    /// Whether our reader can read the handle.
    pub(crate) is_served: bool,
    /// Why the XDP engine can't serve the handle.
    pub(crate) refused_by_engine: Option<fn() -> JoinError>,
    /// Why the poller refuses the handle, or why there is no poller.
    pub(crate) refused_by_poller: Option<fn() -> JoinError>,
    pub(crate) host_use: Option<&'static str>,
    /// Whether the device is something other than a network interface.
    pub(crate) is_stranger: bool,
    /// Why the device can't be set as the handle's settings ask.
    pub(crate) refused_place: Option<fn() -> PlaceError>,
    is_read_by_us: bool,
    is_activated: bool,
    /// Why the handle can't join, and whether the check before the join finds this reason.
    pub(crate) refused: Option<fn() -> JoinError>,
    pub(crate) is_foreseen: bool,
    pub(crate) is_gone: bool,
    pub(crate) is_away: bool,
    group: Option<Joined>,
    /// What the group runs before the handle joins, at each look-up in turn.
    pub(crate) runs: Vec<Runs>,
    /// The text of the steering program that the group's members publish.
    pub(crate) program_text: Option<String>,
    pub(crate) takes: Option<Takes>,
    /// The mode in which the handle has joined, and the digest of its steering program.
    pub(crate) joined_as: Option<String>,
    pub(crate) digest: Option<u64>,
    /// The group of the poller that the handle has asked for.
    pub(crate) entered: Option<Group>,
    pub(crate) stranger: Option<Stranger>,
    /// Bytes of the ring that an engine has made.
    pub(crate) ring_bytes: Option<u64>,
    /// What was noted about the group's mode.
    pub(crate) no_flow: Option<NoFlow>,
    pub(crate) has_kernel_filter: bool,
    pub(crate) cannot_bind: bool,
}

/// tcpdump in the group, which began the group without `flow` if `no_flow` says why.
pub(crate) fn tcpdump(no_flow: Option<NoFlow>) -> Stranger {
    Stranger {
        program: "tcpdump".to_owned(),
        pid: 42,
        no_flow,
    }
}

impl World {
    /// A handle on `device` with the lines of a config file; without lines a plain handle.
    pub(crate) fn open(&self, device: &str, config: Option<&str>) -> Fake<'_> {
        let request = config.map(|config| Request::of(device, settings(config)));
        self.add(request)
    }

    /// A handle on several devices. Returns the handle on the first device.
    pub(crate) fn open_several(&self, devices: &str, config: &str) -> Fake<'_> {
        let request = Request::of(devices, settings(config));
        let parts = request.of_parts().unwrap();
        let handles: Vec<_> = parts.into_iter().map(|part| self.add(Some(part))).collect();
        for handle in &handles {
            handle.change(|state| state.notes.part = PartState::New);
        }
        handles[0].change(|state| state.others = handles.len() - 1);
        handles[0]
    }

    fn add(&self, request: Option<Request>) -> Fake<'_> {
        let mut handles = self.handles.borrow_mut();
        handles.push(State {
            request: request.map(Arc::new),
            notes: Notes::default(),
            others: 0,
            error: String::new(),
            activate: (0, ""),
            is_served: true,
            refused_by_engine: None,
            refused_by_poller: None,
            host_use: None,
            is_stranger: false,
            refused_place: None,
            is_read_by_us: false,
            is_activated: false,
            refused: None,
            is_foreseen: true,
            is_gone: false,
            is_away: false,
            group: None,
            runs: Vec::new(),
            takes: None,
            program_text: None,
            joined_as: None,
            digest: None,
            entered: None,
            stranger: None,
            ring_bytes: None,
            no_flow: None,
            has_kernel_filter: true,
            cannot_bind: false,
        });
        Fake {
            world: self,
            index: handles.len() - 1,
        }
    }

    /// The calls since the test last called this function.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.take()
    }
}

fn settings(config: &str) -> Result<Settings, fanpcap_config::report::Report> {
    let environment = Environment {
        variables: Vec::new(),
        secure: false,
        system_config: PathBuf::from("/etc/pcap.conf"),
    };
    Settings::parse(&environment, config, "/etc/pcap.conf")
}

#[derive(Clone, Copy)]
pub(crate) struct Fake<'w> {
    world: &'w World,
    index: usize,
}

impl PartialEq for Fake<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Fake<'_> {
    pub(crate) fn change<T>(self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.world.handles.borrow_mut()[self.index])
    }

    /// The handle that is `after` places behind this one in the list.
    pub(crate) fn after(self, after: usize) -> Self {
        let index = self.index + after;
        Self { index, ..self }
    }

    fn log(self, call: &str) {
        let call = format!("{} {call}", self.index);
        self.world.calls.borrow_mut().push(call);
    }
}

impl System for Fake<'_> {
    fn activate(self) -> c_int {
        self.log("activate");
        self.change(|state| {
            state.error = state.activate.1.to_owned();
            state.is_activated |= state.activate.0 >= 0;
            state.activate.0
        })
    }

    fn set(self, setting: Setting) {
        self.log(&match setting {
            Setting::Snaplen(bytes) => format!("snaplen {bytes}"),
            Setting::BufferSize(bytes) => format!("buffer {bytes}"),
            Setting::Protocol(protocol) => format!("protocol {protocol}"),
        });
    }

    fn error(self) -> String {
        self.change(|state| state.error.clone())
    }

    fn fail(self, text: &str) -> c_int {
        self.change(|state| state.error = text.to_owned());
        ERROR
    }

    fn is_activated(self) -> bool {
        self.change(|state| state.is_activated)
    }

    fn compiler(self) -> PcapCompiler<'static> {
        self.world.plans.set(self.world.plans.get() + 1);
        &|_| Err("no expressions here".to_owned())
    }

    fn finds(self, _: &str) -> bool {
        !self.change(|state| state.is_gone)
    }

    fn is_on_interfaces(self) -> bool {
        !self.change(|state| state.is_stranger)
    }

    fn is_of_one_interface(self) -> bool {
        true
    }

    fn host_use(self) -> Option<&'static str> {
        self.change(|state| state.host_use)
    }

    fn bind(self) -> io::Result<()> {
        self.log("bind");
        match self.change(|state| state.cannot_bind) {
            true => Err(io::ErrorKind::NotConnected.into()),
            false => Ok(()),
        }
    }

    fn kernel_filter(self) -> io::Result<Option<Filter>> {
        let has_filter = self.change(|state| state.has_kernel_filter);
        Ok(has_filter.then(Filter::reject_all))
    }
}

impl Life for Fake<'_> {
    fn request(self) -> Option<Arc<Request>> {
        self.change(|state| state.request.clone())
    }

    fn remember(self, request: Arc<Request>) {
        self.change(|state| state.request = Some(request));
    }

    fn notes(self) -> Notes {
        self.change(|state| state.notes)
    }

    fn note(self, change: impl FnOnce(&mut Notes)) {
        self.change(|state| change(&mut state.notes));
    }

    fn others(self) -> Option<Arc<[Self]>> {
        let count = self.change(|state| state.others);
        let others = (1..=count).map(|after| self.after(after));
        (count > 0).then(|| others.collect())
    }

    fn place(self, device: &str, wants: &[Want], until: Until) -> Result<(), PlaceError> {
        self.log(&format!("place {device} {wants:?} {until:?}"));
        let refused = self.change(|state| state.refused_place);
        refused.map_or(Ok(()), |error| Err(error()))
    }

    fn take_over(all: &[Self]) -> Result<(), String> {
        let p = all[0];
        match all.len() {
            1 if p.notes().on_engine.is_some() => p.log("take over on xdp"),
            1 => p.log("take over"),
            _ => p.log("take over several"),
        }
        if all.len() > 1 && p.world.is_not_ethernet.get() {
            return Err("not Ethernet".to_owned());
        }
        p.change(|state| state.is_read_by_us = all.len() > 1 || state.is_served);
        Ok(())
    }

    fn is_read_by_us(self) -> bool {
        self.change(|state| state.is_read_by_us)
    }

    fn truncate(self, reader_of: Self) {
        if reader_of.is_read_by_us() {
            self.log("truncate");
        }
    }

    fn publish_counters(self) {
        self.log("publish");
    }

    fn refilter(
        self,
        _: &mut Unchanging<'_>,
        _: io::Result<Option<Filter>>,
    ) -> Result<Filtering, SteerError> {
        Err(SteerError::Beside)
    }
}

impl Return for Fake<'_> {
    fn expect_return(self, _: &str) -> Result<(), String> {
        self.log("expect return");
        Ok(())
    }

    fn is_away(self) -> bool {
        self.change(|state| state.is_away)
    }

    fn leave(self) -> Result<(), String> {
        self.log("leave");
        self.change(|state| {
            (state.is_away, state.group) = (true, None);
        });
        Ok(())
    }

    fn let_go(self) {
        self.log("let go");
    }

    fn is_back(self) -> Result<bool, String> {
        Ok(!self.change(|state| state.is_gone))
    }

    fn bind_silently(self) -> io::Result<()> {
        self.log("bind silently");
        Ok(())
    }

    fn renew_reader(self) -> Result<(), String> {
        self.log("renew");
        self.change(|state| state.is_away = false);
        Ok(())
    }
}

impl Member for Fake<'_> {
    fn prepare(self, _: &GroupChoice, _: &OnEngine) -> Result<(), JoinError> {
        let refused = self.change(|state| state.refused_by_engine);
        refused.map_or(Ok(()), |error| Err(error()))
    }

    fn forget(self) {
        self.log("leave xdp");
    }

    fn join(self, choice: &GroupChoice, together: &[Self]) -> Result<(), JoinError> {
        let place = together.iter().position(|it| *it == self);
        self.log(&place.map_or("join".to_owned(), |place| {
            format!("join {place} of {}", together.len())
        }));
        self.change(|state| match state.refused {
            Some(error) => Err(error()),
            None => {
                state.takes.map_or(Ok(()), |takes| takes(choice))?;
                let steering = choice.steering.as_ref();
                state.joined_as = Some(choice.shown_mode());
                state.digest = steering.map(|steering| steering.digest());
                let is_steered = choice.steering.is_some();
                state.group = Some(Joined {
                    group: number(choice),
                    mode: choice.mode,
                    weight: is_steered.then(|| choice.weight.unwrap_or(1)),
                    class: choice.class,
                });
                Ok(())
            }
        })
    }

    fn enter(self, choice: Option<&GroupChoice>, asked: &Polled) -> Result<u64, JoinError> {
        self.log(&format!("enter {}", asked.engine));
        let poller = self.notes().poller;
        self.change(|state| {
            state
                .refused_by_poller
                .map_or(Ok(()), |error| Err(error()))?;
            state.joined_as = choice.map(GroupChoice::shown_mode);
            state.entered = choice.map(|it| it.group);
            state.group = Some(Joined {
                group: choice.map_or(0, number),
                mode: ModeKind::Program.into(),
                weight: Some(choice.and_then(|it| it.weight).unwrap_or(1)),
                class: choice.map_or(0, |it| it.class),
            });
            match poller {
                0 => Ok(ONE_POLLER),
                needed => Ok(needed),
            }
        })
    }

    fn foresee(self, _: &GroupChoice) -> Result<(), JoinError> {
        self.log("foresee");
        let refused = self.change(|state| state.refused.filter(|_| state.is_foreseen));
        refused.map_or(Ok(()), |error| Err(error()))
    }

    fn runs(self, _: u16) -> Runs {
        self.change(|state| match state.runs.len() {
            0 => Runs::Nothing,
            1 => state.runs[0].clone(),
            _ => state.runs.remove(0),
        })
    }

    fn program_text(self, _: u16) -> Option<String> {
        self.change(|state| state.program_text.clone())
    }

    fn group(self) -> Option<Joined> {
        self.change(|state| state.group)
    }

    fn replace_program(self, _: &Arc<Steering>) -> Result<(), String> {
        self.log("replace");
        Ok(())
    }

    fn stranger(self) -> Option<Stranger> {
        self.change(|state| state.stranger.clone())
    }

    fn ring_bytes(self) -> Option<u64> {
        self.change(|state| state.ring_bytes)
    }

    fn note_no_flow(self, why: NoFlow) {
        self.change(|state| state.no_flow = Some(why));
    }

    fn steered(self) -> Option<Arc<Steered>> {
        None
    }

    fn rejections(self) -> Option<Rejections> {
        None
    }

    fn filter_on_engine(self, _: &[Classic], number: u32) -> bool {
        self.log(&format!("filter {number} on xdp"));
        self.change(|state| state.has_kernel_filter)
    }
}

fn number(choice: &GroupChoice) -> u16 {
    match choice.group {
        Group::Number(number) => number,
        Group::New => u16::MAX,
    }
}
