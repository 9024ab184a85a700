//! The threads' handles: opened, put in one group, filtered.

use anyhow::{Context, Result, bail, ensure};
use fanpcap::request::Request;
use fanpcap_linux::pcap::{Handle, Library, Precision};

use super::Arguments;

/// How handles come to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    /// There is one handle, and nothing was asked for.
    None,
    /// Environment or config file say which.
    Settings,
    /// By pcap_fanout(3PCAP), in this group or a new one.
    Call(Option<u16>),
}

/// Opens the savefile, or the device once for each thread.
pub(super) fn open(arguments: &Arguments, library: &Library) -> Result<Vec<Handle>> {
    let mut handles = match (&arguments.read, &arguments.interface) {
        (Some(file), _) => vec![library.open_offline(file, Precision::Nano)?],
        (None, Some(device)) => open_device(arguments, library, device)?,
        (None, None) => bail!("no device: name one by --interface"),
    };
    let expression = arguments.expression();
    if !expression.is_empty() {
        for handle in &mut handles {
            let set = handle.set_filter(&expression);
            set.with_context(|| format!("the filter '{expression}'"))?;
        }
    }
    Ok(handles)
}

fn open_device(arguments: &Arguments, library: &Library, device: &str) -> Result<Vec<Handle>> {
    let mut membership = choose(arguments, library, device)?;
    let mut handles = Vec::new();
    for thread in 0..arguments.threads {
        let handle = activate(arguments, library, device, membership)
            .with_context(|| format!("{device}, thread {thread}"))?;
        if membership == Membership::Call(None) {
            // The group that the kernel has picked for the first is that of the others.
            membership = Membership::Call(handle.group());
        }
        handles.push(handle);
    }
    share(&handles, device)?;
    Ok(handles)
}

/// What `arguments` and settings ask for.
fn choose(arguments: &Arguments, library: &Library, device: &str) -> Result<Membership> {
    let asked = arguments.group.is_some() || arguments.fanout.is_some();
    if !library.fans_out() {
        let path = library.path().display();
        ensure!(
            !asked && arguments.threads == 1,
            "{path} has no pcap_fanout(), so its handles can't share packets: each thread would capture \
             every packet. Use one thread, or fanpcap's own library (no --library)"
        );
        return Ok(Membership::None);
    }
    if !asked && is_set(device) {
        return Ok(Membership::Settings);
    }
    if !asked && arguments.threads == 1 {
        return Ok(Membership::None);
    }
    ensure!(
        arguments.threads == 1 || !device.contains('^'),
        "{device}: the kernel's groups are of one device each, so several threads can't share several \
         devices by --group or --fanout: name a group for each in the environment, \
         PCAP_GROUP_eth0=5 PCAP_GROUP_eth1=6, or in pcap.conf(5)"
    );
    Ok(Membership::Call(arguments.group))
}

/// Whether the settings name a group. What is wrong with them the library says.
fn is_set(device: &str) -> bool {
    let Some(request) = Request::new(device) else {
        return false;
    };
    let of_parts = request.of_parts().unwrap_or_else(|| vec![request]);
    let mut plans = of_parts.iter().map(Request::plan);
    plans.any(|plan| plan.map_or(true, |plan| plan.membership.is_some()))
}

fn activate(
    arguments: &Arguments,
    library: &Library,
    device: &str,
    membership: Membership,
) -> Result<Handle> {
    let mut created = library.create(device)?;
    created.set_snaplen(arguments.snaplen)?;
    created.set_promisc(!arguments.no_promisc)?;
    created.set_timeout(arguments.timeout)?;
    created.set_immediate_mode(arguments.immediate)?;
    if let Some(bytes) = arguments.buffer {
        created.set_buffer_size(bytes)?;
    }
    // Where the device has microseconds only, so has the savefile.
    let _ = created.set_tstamp_precision(Precision::Nano);
    if let Membership::Call(group) = membership {
        created.fanout(group, arguments.fanout.as_deref())?;
    }
    let (handle, warning) = created.activate()?;
    if let Some(warning) = warning {
        eprintln!("fanpcap: warning: {device}: {warning}");
    }
    Ok(handle)
}

/// Several handles must be in one group, or each packet would be captured several times.
fn share(handles: &[Handle], device: &str) -> Result<()> {
    let mut groups = handles.iter().map(Handle::group);
    let first = groups.next().flatten();
    ensure!(
        handles.len() == 1 || (first.is_some() && groups.all(|group| group == first)),
        "{device}: the settings put the threads' handles in no group, or in several; name one by --group"
    );
    Ok(())
}
