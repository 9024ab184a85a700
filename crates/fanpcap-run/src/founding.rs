//! Founds a group, for applications that may not load BPF programs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap::request::Request;
use fanpcap_config::device::ANY;
use fanpcap_config::driver::Driver;
use fanpcap_config::settings::{Environment, Explained, Group, Plan, Settings};
use fanpcap_group::founder::{AttendError, FoundError, Founder, PERIOD};
use fanpcap_linux::interface;
use fanpcap_linux::process::is_secure;
use fanpcap_linux::wait::{events, pipe::Pipe};
use fanpcap_pcap::compile_expression;

/// The first pause after a look at a group: a member that is gone keeps the founder's descriptor
/// readable until somebody has looked after it. The pauses grow up to [`PERIOD`] meanwhile.
const PAUSE: Duration = Duration::from_millis(2);

/// A thread that answers the newcomers of a founded group, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Attending {
    thread: Option<JoinHandle<()>>,
    /// Hangs up when this value is dropped, which ends the thread.
    stop: Option<OwnedFd>,
}

impl Attending {
    /// Starts the thread. It tells by `tell` why the founder can't make rings.
    ///
    /// # Errors
    /// The thread or its pipe can't be made.
    pub(crate) fn start(
        founder: &Arc<Founder>,
        tell: impl Fn(&str) + Send + 'static,
    ) -> Result<Self> {
        let Pipe { read, write } = Pipe::new().context("a pipe")?;
        let founder = Arc::clone(founder);
        let attend = move || {
            let mut looks = Looks::default();
            while attend(&founder, &[read.as_fd()], &mut looks, &tell) != [true] {}
        };
        let thread = thread::Builder::new().name("founder".to_owned());
        Ok(Self {
            thread: Some(thread.spawn(attend).context("a thread")?),
            stop: Some(write),
        })
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread panics only after a defect, and then this command goes on without it.
            let _ = thread.join();
        }
    }
}

/// What a founder's next look at its group needs from the looks before.
#[derive(Debug)]
pub(crate) struct Looks {
    /// The pause after the next look.
    pause: Duration,
    told: Told,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            pause: PAUSE,
            told: Told::default(),
        }
    }
}

/// The errors that were told, without their digits: a memory limit's use changes all the time.
#[derive(Debug, Default)]
struct Told(BTreeSet<String>);

impl Told {
    /// Whether this error was not told yet, not even with other numbers.
    fn is_new(&mut self, text: &str) -> bool {
        let digitless = text.chars().filter(|it| !it.is_ascii_digit());
        self.0.insert(digitless.collect())
    }
}

/// Waits for newcomers or for one of `others`, but not longer than until the founder publishes its
/// counters again. Answers the newcomers. Returns which of `others` are ready. Tells by `tell` why
/// the founder can't make rings, each reason once.
pub(crate) fn attend(
    founder: &Founder,
    others: &[BorrowedFd<'_>],
    looks: &mut Looks,
    tell: &dyn Fn(&str),
) -> Vec<bool> {
    let mut fds = vec![founder.waits_on()];
    fds.extend(others);
    let ready = events::poll(&fds, Some(PERIOD)).unwrap_or_default();
    // What else fails is tried again, and newcomers that were not answered ask again.
    if let Err(error @ AttendError::Spares(_)) = founder.attend() {
        let text = format!("looking after the group: {error}");
        if looks.told.is_new(&text) {
            tell(&text);
        }
    }
    if ready.first() == Some(&true) {
        thread::sleep(looks.pause);
        looks.pause = PERIOD.min(looks.pause * 2);
    } else {
        looks.pause = PAUSE;
    }
    ready.into_iter().skip(1).collect()
}

/// The settings of a member of a group on a device. `fanout` is the mode that an argument of the
/// command gives. `None` if the settings have errors, which each member reports.
pub(crate) fn explained(group: u16, device: &str, fanout: Option<&str>) -> Option<Explained> {
    let mut environment = Environment::whole(is_secure());
    let variables = &mut environment.variables;
    variables.retain(|(name, _)| !is_replaced(name, fanout.is_some()));
    variables.push(("PCAP_GROUP".into(), group.to_string().into()));
    let fanout = fanout.map(|fanout| ("PCAP_FANOUT".into(), fanout.into()));
    variables.extend(fanout);
    let request = Request::of(device, Settings::load(&environment));
    let explained = request.explain(&compile_expression).ok()?;
    explained.into_iter().next()
}

/// The group that the config file gives a device, and where.
pub(crate) fn configured(device: &str) -> Option<(u16, String)> {
    let mut environment = Environment::whole(is_secure());
    let variables = &mut environment.variables;
    variables.retain(|(name, _)| !is_replaced(name, false));
    let request = Request::of(device, Settings::load(&environment));
    let explained = request.explain(&compile_expression).ok()?;
    let choice = explained.into_iter().next()?.plan.ok()?.choice?;
    match choice.group {
        Group::Number(number) => Some((number, choice.origin)),
        Group::New => None,
    }
}

/// The engine that attaches to devices and that the settings ask for.
pub(crate) fn asked_engine(
    group: u16,
    device: Option<&str>,
    fanout: Option<&str>,
) -> Option<Driver> {
    let plan = explained(group, device?, fanout)?.plan.ok()?;
    plan.on_engine.map(|it| it.engine)
}

/// The engine with a poller that the settings ask for.
pub(crate) fn asked_poller(
    group: u16,
    device: Option<&str>,
    fanout: Option<&str>,
) -> Option<Driver> {
    let plan = explained(group, device?, fanout)?.plan.ok()?;
    plan.polled.map(|it| it.engine)
}

/// Founds the group of copies if its mode is a steering program. `engine` is the engine that the
/// copies' arguments name. `None` if the mode is one of the kernel's, if the group exists already,
/// or if this process can't found it. The first copy then begins the group, or reports why it
/// can't.
pub(crate) fn of_copies(
    group: u16,
    device: Option<&str>,
    engine: Option<Driver>,
    fanout: Option<&str>,
) -> Option<Arc<Founder>> {
    let device = device.filter(|device| *device != ANY)?;
    let prefixed = engine.map(|engine| format!("{engine}:{device}"));
    let asked = prefixed.as_deref().unwrap_or(device);
    let plan = explained(group, asked, fanout)?.plan.ok()?;
    // A poller founds its groups itself.
    if plan.polled.is_some() {
        return None;
    }
    found(group, device, &plan).ok()?.map(Arc::new)
}

/// Founds a group on a device, for the members of this plan. `None` if the group exists already, or
/// if its members can found it without a privilege.
///
/// # Errors
/// [`FoundError`].
pub(crate) fn found(group: u16, device: &str, plan: &Plan) -> Result<Option<Founder>, FoundError> {
    let engine = plan.on_engine.as_ref();
    let engine = engine.map(|it| (it.engine.name(), it.outgoing));
    match interface::index(device).zip(plan.choice.as_ref()) {
        Some((ifindex, choice)) => Founder::found((ifindex, group), choice, engine),
        None => Ok(None),
    }
}

/// Whether this command replaces the variable `name`, because the variable sets the group or, if
/// `has_fanout`, the mode.
pub(crate) fn is_replaced(name: &OsStr, has_fanout: bool) -> bool {
    let name = name.to_string_lossy();
    let is = |key: &str| {
        let rest = name.strip_prefix(key);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    name == "PCAP_DEF_GROUP" || is("PCAP_GROUP") || (has_fanout && is("PCAP_FANOUT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_once_whatever_its_numbers_are() {
        let mut told = Told::default();
        let used = |mib: u32| format!("of the limit of 70 MiB, {mib} MiB are in use");
        assert!(told.is_new(&used(9)));
        assert!(!told.is_new(&used(9)) && !told.is_new(&used(64)));
        assert!(told.is_new("the kernel does not have enough memory"));
        assert!(!told.is_new(&used(70)));
    }
}
