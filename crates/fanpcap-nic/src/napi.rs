//! Threaded NAPI: a kernel thread polls each queue of a device, on CPUs that can be set.

use crate::device::Device;
use crate::error::DeviceError;
use fanpcap_linux::netlink::netdev;
use fanpcap_linux::process::{cpu, stat};
use std::{fs, io};

/// Whether threads poll the device's queues.
///
/// # Errors
/// [`DeviceError::OldKernel`] and [`DeviceError::Failed`].
pub fn is_threaded(device: &Device) -> Result<bool, DeviceError> {
    let text = device
        .read(THREADED)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => DeviceError::OldKernel,
            // While a device is being removed, reads of its files in sysfs fail.
            _ => unknown(error),
        })?;
    Ok(text != "0")
}

/// Sets whether threads poll the device's queues.
///
/// # Errors
/// [`DeviceError`].
pub fn set_threaded(device: &Device, is_threaded: bool) -> Result<(), DeviceError> {
    let text = if is_threaded { "1" } else { "0" };
    let written = device.write(THREADED, text);
    written.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => DeviceError::OldKernel,
        Some(libc::EOPNOTSUPP) => DeviceError::NoNapi,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => DeviceError::Failed(NEEDS, error),
        _ => unknown(error),
    })
}

/// The threads that poll the device's receive queues, as pairs of queue and thread. Leaves out
/// queues whose thread is unknown.
///
/// # Errors
/// [`DeviceError::NotThreaded`] and [`DeviceError::Hidden`].
pub fn threads(device: &Device) -> Result<Vec<(u32, u32)>, DeviceError> {
    if !is_threaded(device)? {
        return Err(DeviceError::NotThreaded);
    }
    let mut threads = match netdev::napis(device.ifindex) {
        Ok(napis) => told(device, &napis),
        Err(_) => by_name(device),
    };
    // In a nested PID namespace, these numbers do not belong to the threads: other processes may
    // have them.
    threads.retain(|&(_, pid)| comm(pid).starts_with("napi/"));
    // Process 2 is `kthreadd`, the parent of all kernel threads, only in the host's PID namespace.
    if threads.is_empty() && comm(2) != "kthreadd" {
        return Err(DeviceError::Hidden);
    }
    Ok(threads)
}

/// The thread that polls a receive queue.
///
/// # Errors
/// As [`threads`], and [`DeviceError::NoThread`].
pub fn thread(device: &Device, queue: u32) -> Result<u32, DeviceError> {
    let threads = threads(device)?;
    let found = threads.iter().find(|it| it.0 == queue);
    found.map(|it| it.1).ok_or(DeviceError::NoThread {
        queue,
        threads: threads.len(),
    })
}

/// The CPUs of the thread that polls a receive queue.
///
/// # Errors
/// As [`thread`].
pub fn affinity(device: &Device, queue: u32) -> Result<Vec<usize>, DeviceError> {
    cpu::affinity(thread(device, queue)?).map_err(unknown)
}

/// Sets the CPUs of the thread that polls a receive queue.
///
/// # Errors
/// As [`thread`]; [`DeviceError::Offline`] and [`DeviceError::Failed`].
pub fn set_affinity(device: &Device, queue: u32, cpus: &[usize]) -> Result<(), DeviceError> {
    let thread = thread(device, queue)?;
    cpu::set_affinity(thread, cpus).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => DeviceError::Offline,
        Some(libc::EPERM) => DeviceError::Failed(NEEDS, error),
        _ => unknown(error),
    })
}

/// Pairs of queue and thread, as the kernel reports them. If the driver does not assign instances
/// to queues, the instances are assigned in order, provided that there are as many instances as
/// queues.
fn told(device: &Device, napis: &[netdev::Napi]) -> Vec<(u32, u32)> {
    let queues = netdev::receive_queues(device.ifindex).unwrap_or_default();
    let thread = |id| napis.iter().find(|napi| napi.id == id)?.thread;
    if !queues.is_empty() {
        let pairs = queues
            .iter()
            .filter_map(|&(queue, id)| Some((queue, thread(id)?)));
        return pairs.collect();
    }
    in_order(
        device,
        napis.iter().filter_map(|napi| napi.thread).collect(),
    )
}

/// Finds the threads by their names, `napi/DEV-ID`. Before Linux 6.8, there is no other way to find
/// them.
fn by_name(device: &Device) -> Vec<(u32, u32)> {
    let prefix = format!("napi/{}-", device.name);
    // Instances that only send have the ID 0.
    let id = |pid| comm(pid).strip_prefix(&prefix)?.parse::<u32>().ok();
    let mut found: Vec<(u32, u32)> = stat::pids()
        .filter_map(|pid| Some((id(pid)?, pid)))
        .collect();
    found.retain(|&(id, _)| id > 0);
    found.sort_unstable();
    in_order(device, found.into_iter().map(|(_, pid)| pid).collect())
}

/// Assigns threads to queues in order. The number of threads must be the number of queues, or the
/// device's maximum number of channels: some drivers also have instances for unused queues.
/// Otherwise assigns nothing: drivers may have instances for other purposes, and another namespace
/// may have a device of the same name.
fn in_order(device: &Device, threads: Vec<u32>) -> Vec<(u32, u32)> {
    let queues = rx_queues(device);
    let most = device
        .ethtool
        .channels()
        .map_or(0, |it| it.most[0].max(it.most[3]));
    let is_each = [queues, most as usize].contains(&threads.len());
    (0..)
        .zip(threads)
        .take(queues)
        .filter(|_| is_each)
        .collect()
}

fn rx_queues(device: &Device) -> usize {
    match device.ethtool.receive_queues() {
        Some(queues) => queues as usize,
        None => device.queues("rx-").count(),
    }
}

fn unknown(error: io::Error) -> DeviceError {
    DeviceError::Failed("NAPI threads can't be listed", error)
}

fn comm(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    text.trim_end().to_owned()
}

/// The message for a process that lacks the right to set the threads.
const NEEDS: &str = "setting NAPI threads needs root";
const THREADED: &str = "threaded";
