//! Opens the threads' handles one after another, in one group, and sets the filter.

use anyhow::{Context, Error, Result, anyhow, ensure};
use fanpcap::request::Request;
use fanpcap_linux::interface;
use fanpcap_linux::wait::clock;
use fanpcap_pcap::{Handle, Library, Precision};

use super::{Arguments, link};

/// The way in which the handles join their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupChoice {
    /// No group: there is one handle, and neither the arguments nor the settings ask for a group.
    None,
    /// Through the settings: environment or config file.
    Settings,
    /// Through pcap_fanout(3PCAP): into the group with this number, or into a new group if there is
    /// no number.
    Call(Option<u16>),
}

/// Opens the handles.
pub(super) struct Source<'a> {
    arguments: &'a Arguments,
    library: &'a Library,
    choice: GroupChoice,
    /// Group of the handles opened so far.
    group: Option<u16>,
}

/// An activated handle.
pub(super) struct Opened {
    pub(super) handle: Handle,
    /// The time at which the handle began to receive, by [`clock::monotonic_ns`].
    pub(super) since_ns: u64,
    /// Maximum number of packets that the kernel may have let through before the filter was set.
    pub(super) late_max: u64,
}

impl<'a> Source<'a> {
    /// A source for the device or savefile in `arguments`.
    pub(super) fn new(arguments: &'a Arguments, library: &'a Library) -> Result<Self> {
        let device = arguments.device();
        let choice = device.map(|device| choose(arguments, library, device));
        Ok(Self {
            arguments,
            library,
            choice: choice.transpose()?.unwrap_or(GroupChoice::None),
            group: None,
        })
    }

    /// Opens the savefile, or the device for thread number `thread`. The handles of all earlier
    /// threads must be open.
    pub(super) fn open(&mut self, thread: u16) -> Result<Opened> {
        let since_ns = clock::monotonic_ns();
        let arguments = self.arguments;
        let mut handle = match (&arguments.read, arguments.device()) {
            (Some(file), _) => {
                let opened = self.library.open_offline(file, Precision::Nano);
                opened.with_context(|| format!("reading {}", file.display()))?
            }
            (None, device) => {
                let device = device.context("no device: name one")?;
                self.open_device(device, thread)?
            }
        };
        // Set the filter immediately: until then the kernel lets every packet through.
        let late_max = self.set_filter(&mut handle)?;
        Ok(Opened {
            handle,
            since_ns,
            late_max,
        })
    }

    fn open_device(&mut self, device: &str, thread: u16) -> Result<Handle> {
        let opened = activate(self.arguments, self.library, device, self.choice);
        let handle = opened.map_err(|error| anyhow!(refusal(device, thread, &error)))?;
        let group = handle.group();
        if thread == 0 {
            self.group = group;
        }
        if self.choice == GroupChoice::Call(None) {
            // The first handle got a new group. All other handles join that group.
            self.choice = GroupChoice::Call(group);
        }
        // Several handles outside a group would capture each packet several times.
        ensure!(
            self.arguments.threads == 1 || (group.is_some() && group == self.group),
            "{device}: the settings put the threads' handles in no group or in several groups; name one group by --group"
        );
        Ok(handle)
    }

    /// Sets the filter, if the user has given a filter. Returns the maximum number of unfiltered
    /// packets in the ring. A handle joins its group when it is activated, and its filter can be
    /// set only after that. If the handle joined later, it would first receive the other members'
    /// packets too. libpcap rejects unfiltered packets when the thread reads them.
    fn set_filter(&self, handle: &mut Handle) -> Result<u64> {
        let expression = self.arguments.expression();
        if expression.is_empty() {
            return Ok(0);
        }
        let set = handle.set_filter(&expression);
        set.with_context(|| match self.arguments.read.is_some() {
            true => format!("the filter '{expression}' (with --read, all words are the filter)"),
            false => format!("the filter '{expression}'"),
        })?;
        if self.arguments.read.is_some() {
            return Ok(0);
        }
        if !handle.is_filtered_in_kernel() {
            return Ok(u64::MAX);
        }
        let until_now = handle.stats()?;
        Ok(until_now.received.saturating_sub(until_now.dropped).into())
    }
}

/// Chooses the group from `arguments` and the settings.
fn choose(arguments: &Arguments, library: &Library, device: &str) -> Result<GroupChoice> {
    let asked = arguments.group.is_some() || arguments.fanout.is_some();
    if !library.fans_out() {
        let path = library.path().display();
        ensure!(
            !asked && arguments.threads == 1,
            "{path} has no pcap_fanout(), so its handles can't share packets: each thread would capture \
             every packet. Use one thread, or fanpcap's own library (no --library)"
        );
        return Ok(GroupChoice::None);
    }
    if !asked && !arguments.is_apart && is_set(device) {
        return Ok(GroupChoice::Settings);
    }
    if !asked && !arguments.is_apart && arguments.threads == 1 {
        return Ok(GroupChoice::None);
    }
    Ok(GroupChoice::Call(arguments.group))
}

/// Whether the settings name a group. Wrong settings count as naming a group, so that the library
/// uses them and reports the mistake.
fn is_set(device: &str) -> bool {
    let Some(request) = Request::new(device) else {
        return false;
    };
    let of_parts = request.of_parts().unwrap_or_else(|| vec![request]);
    let pcap = |_: &str| Err("it is the library that compiles filters".to_owned());
    let mut plans = of_parts.iter().map(|request| request.plan(&pcap));
    plans.any(|plan| plan.map_or(true, |plan| plan.choice.is_some()))
}

/// What the library says about a handle that can't be opened, and what to do if the library, like
/// the system's, does not say it.
fn refusal(device: &str, thread: u16, error: &Error) -> String {
    let said = match error.downcast_ref::<fanpcap_pcap::Error>() {
        Some(of_library) => of_library.reason.replace("pcap_fanout():", "--fanout:"),
        None => format!("{error:#}"),
    };
    let missing = link::missing(device).filter(|_| said.contains("No such device exists"));
    if let Some(name) = missing {
        return interface::missing(&name);
    }
    if said.starts_with("--fanout:") {
        return said;
    }
    let place = match thread {
        0 => device.to_owned(),
        _ => format!("{device}, thread {thread}"),
    };
    let advice = if said.contains("device is not up") {
        link::base(device).map(|name| format!("'ip link set {name} up'"))
    } else if said.contains("permission") && !said.contains("CAP_NET_RAW") {
        Some("run as root, or with CAP_NET_RAW".to_owned())
    } else {
        None
    };
    let advice = advice.map_or_else(String::new, |it| format!(": {it}"));
    format!("{place}: {said}{advice}")
}

fn activate(
    arguments: &Arguments,
    library: &Library,
    device: &str,
    choice: GroupChoice,
) -> Result<Handle> {
    let mut created = library.create(device)?;
    created.set_snaplen(arguments.snaplen)?;
    created.set_promisc(!arguments.no_promisc)?;
    created.set_timeout(arguments.timeout)?;
    created.set_immediate_mode(arguments.immediate)?;
    if let Some(bytes) = arguments.buffer {
        created.set_buffer_size(bytes)?;
    }
    // Ignore a failure: on a device with a resolution of microseconds, the savefile also has
    // microseconds.
    let _ = created.set_tstamp_precision(Precision::Nano);
    if let GroupChoice::Call(group) = choice {
        created.fanout(group, arguments.fanout.as_deref())?;
    }
    let (handle, warning) = created.activate()?;
    if let Some(warning) = warning {
        fanpcap_terminal::streams::note(&format!("fanpcap: warning: {device}: {warning}\n"));
    }
    Ok(handle)
}
