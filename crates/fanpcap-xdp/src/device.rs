//! A device: what all groups on it share.

use crate::layout::settings;
use crate::layout::{self, BERTHS, Lanes, PROGRAMS_MAP, SETTINGS_LEN, SETTINGS_MAP, STAMP_MAP};
use crate::program::DockMaps;
use crate::root::root;
use crate::unavailable::Unavailable;
use fanpcap_bpf::{MapKind, Object, ProgramKind};
use fanpcap_linux::bpf::{
    self, Attached, Hook, LoadError, Loaded, LoadedProgram, Map, ObjectArray, Table,
};
use fanpcap_linux::netlink::link::{self, Link};
use fanpcap_linux::{ethtool, interface};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// The engine's part of a device that has been taken over: its BPF link, whose BPF program is that
/// of the only group, or a root; the groups' BPF programs; and the settings.
///
/// The kernel frees all of it with the last process that has it open. Each member's process must
/// keep it open: the kernel forgets the groups' BPF programs, or detaches the root, otherwise.
#[derive(Debug)]
pub struct Device {
    link: Attached,
    programs: ObjectArray,
    settings: Table,
    stamp: Map,
}

/// How many descriptors a device has.
pub const DEVICE_DESCRIPTORS: usize = 4;

impl Lanes {
    /// The lanes for the receive queues that a device has now.
    pub fn of_device(ifindex: u32) -> Self {
        let queues = ethtool::Device::find(ifindex).ok();
        let queues = queues.and_then(|device| device.receive_queues());
        Self::for_queues(queues.unwrap_or(1))
    }
}

impl Device {
    /// Takes over a device of the calling thread's network namespace. The host still gets all
    /// packets.
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub fn take_over(ifindex: u32) -> Result<Self, Unavailable> {
        check(ifindex)?;
        let of_map = |error| Unavailable::Load(LoadError::of_map(ProgramKind::Xdp, error));
        let settings = Table::create_rows(SETTINGS_MAP, SETTINGS_LEN, 1).map_err(of_map)?;
        if let Some(verdict) = number(&settings, settings::VERDICT) {
            verdict.store(layout::XDP_PASS, Ordering::Release);
        }
        let stamp = Map::create(STAMP_MAP, &layout::stamp()).map_err(of_map)?;
        let programs = ObjectArray::create(PROGRAMS_MAP, MapKind::ProgArray, BERTHS);
        let programs = programs.map_err(of_map)?;
        let maps = Maps {
            settings: settings.as_fd(),
            stamp: stamp.as_fd(),
            programs: programs.as_fd(),
        };
        // Older kernels don't know the flag with which XDP programs are loaded.
        let is_old = |error: &LoadError| matches!(error, LoadError::Refused(it) if it.error.raw_os_error() == Some(EINVAL));
        let nobody = maps.load_root(0).map_err(|error| {
            if is_old(&error) {
                Unavailable::Kernel
            } else {
                Unavailable::Load(error)
            }
        })?;
        let link = nobody.attach(ifindex, Hook::Driver);
        let link = link.map_err(|error| refused(ifindex, error))?;
        Ok(Self {
            link,
            programs,
            settings,
            stamp,
        })
    }

    /// The device behind [`Device::descriptors`] of another process. It takes no capability.
    ///
    /// # Errors
    /// `InvalidData` when they are not those of a device.
    pub fn open(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let all = <[OwnedFd; DEVICE_DESCRIPTORS]>::try_from(descriptors);
        let [link, programs, settings, stamp] = all.map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self {
            link: Attached::open(link, Hook::Driver)?,
            programs: ObjectArray::open(programs, MapKind::ProgArray, BERTHS)?,
            settings: Table::open_rows(settings, SETTINGS_LEN)?,
            stamp: Map::given(stamp.as_fd(), &layout::stamp())?,
        })
    }

    /// All descriptors, for [`Device::open`] in another process.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; DEVICE_DESCRIPTORS] {
        [
            self.link.as_fd(),
            self.programs.as_fd(),
            self.settings.as_fd(),
            self.stamp.as_fd(),
        ]
    }

    /// The device's index; 0 when it is gone, or somebody has detached the BPF program.
    ///
    /// # Errors
    /// None on any known kernel.
    pub fn ifindex(&self) -> io::Result<u32> {
        self.link.ifindex()
    }

    /// What a group's BPF program on this device is loaded with.
    pub fn maps(&self) -> DockMaps<'_> {
        DockMaps {
            ifindex: self.ifindex().unwrap_or(0),
            settings: self.settings.as_fd(),
            stamp: self.stamp.as_fd(),
        }
    }

    /// Sets whether the host gets packets of which no steering program says so.
    pub fn set_steals(&self, steals: bool) {
        if let Some(verdict) = number(&self.settings, settings::VERDICT) {
            let wanted = if steals {
                layout::XDP_DROP
            } else {
                layout::XDP_PASS
            };
            verdict.store(wanted, Ordering::Release);
        }
    }

    /// Whether the host gets no packets but those of which a steering program says so.
    pub fn steals(&self) -> bool {
        let verdict = number(&self.settings, settings::VERDICT);
        verdict.is_some_and(|it| it.load(Ordering::Acquire) == layout::XDP_DROP)
    }

    /// Gives the device's packets to the groups of these berths alone, each with its BPF program. A
    /// group keeps its berth. Each packet goes to the groups before the change, or to those after
    /// it. It can be done again from its beginning. One caller at a time.
    ///
    /// One more group takes `CAP_BPF` and `CAP_NET_ADMIN`. One less takes no capability.
    ///
    /// # Errors
    /// `ENOLINK` when the device is gone; `EPERM` without the capabilities; those of bpf(2).
    pub fn serve(&self, berths: &[(u8, OwnedFd)]) -> io::Result<()> {
        for (berth, program) in berths {
            self.programs.put((*berth).into(), &[program.as_fd()])?;
        }
        let wanted = berths.iter().fold(0, |all, (berth, _)| all | (1 << berth));
        match berths {
            [(_, only)] => {
                let program = only.try_clone()?;
                let program = LoadedProgram::open(program, ProgramKind::Xdp)?;
                self.set_root(0);
                self.link.replace(&program)?;
            }
            _ => self.serve_by_root(wanted)?,
        }
        let is_free = |berth: &u32| wanted & (1 << berth) == 0;
        (0..BERTHS)
            .filter(is_free)
            .try_for_each(|berth| self.programs.remove(berth, 1))
    }

    /// A root for these berths, or the one that is there if it has them and no other can be loaded:
    /// where there is no BPF program it goes on.
    fn serve_by_root(&self, berths: u32) -> io::Result<()> {
        let maps = Maps {
            settings: self.settings.as_fd(),
            stamp: self.stamp.as_fd(),
            programs: self.programs.as_fd(),
        };
        let root = match maps.load_root(berths) {
            Ok(root) => root,
            Err(_) if berths != 0 && self.root() & berths == berths => return Ok(()),
            Err(error) => return Err(io_error(error)),
        };
        // Groups' BPF programs look for a stamp from now on, and find none without a root.
        if let Some(has_root) = number(&self.settings, settings::HAS_ROOT) {
            has_root.store(1, Ordering::SeqCst);
        }
        // Who dies before the last of these steps leaves the root's berths told too few, never too
        // many.
        self.set_root(self.root() & berths);
        self.link.replace(&root)?;
        self.set_root(berths);
        Ok(())
    }

    /// The berths of the root that the device has; 0 without one.
    fn root(&self) -> u32 {
        let root = number(&self.settings, settings::ROOT);
        root.map_or(0, |root| root.load(Ordering::Acquire))
    }

    fn set_root(&self, berths: u32) {
        if let Some(root) = number(&self.settings, settings::ROOT) {
            root.store(berths, Ordering::Release);
        }
    }
}

/// The maps that a root is given.
struct Maps<'a> {
    settings: BorrowedFd<'a>,
    stamp: BorrowedFd<'a>,
    programs: BorrowedFd<'a>,
}

impl Maps<'_> {
    fn load_root(&self, berths: u32) -> Result<LoadedProgram, LoadError> {
        let root: Object = root(berths).map_err(|_| LoadError::Map(io::ErrorKind::Other.into()))?;
        let given = [
            (SETTINGS_MAP, self.settings),
            (STAMP_MAP, self.stamp),
            (PROGRAMS_MAP, self.programs),
        ];
        Loaded::load_with(&root, "fanpcap_root", &given).map(Loaded::into_program)
    }
}

/// Finds out without privilege whether the device can be taken over at all.
fn check(ifindex: u32) -> Result<(), Unavailable> {
    if ifindex == 0 {
        return Err(Unavailable::AnyDevice);
    }
    let link: Link = link::get(ifindex).map_err(Unavailable::Device)?;
    if link.flags & IFF_LOOPBACK != 0 {
        return Err(Unavailable::Loopback);
    }
    if link.hardware != ARPHRD_ETHER {
        return Err(Unavailable::NotEthernet);
    }
    if link.kind == "bridge" {
        return Err(Unavailable::Kind(link.kind));
    }
    if let Some(found) = link.xdp {
        return Err(foreign(found.program));
    }
    let takes_tags = ethtool::Device::find(ifindex).and_then(|device| device.takes_vlan_tags());
    // A veth passes a tag on beside the frame when its peer sends it so, whatever its own setting.
    if link.kind != "veth" && takes_tags.unwrap_or(false) {
        return Err(Unavailable::TakesVlanTags(link.name));
    }
    Ok(())
}

fn foreign(id: u32) -> Unavailable {
    let name = bpf::program_name(id).ok();
    Unavailable::Foreign { name, id }
}

/// Why the kernel does not attach the BPF program.
fn refused(ifindex: u32, error: io::Error) -> Unavailable {
    let is_busy = matches!(error.raw_os_error(), Some(EBUSY | EEXIST));
    let found = link::get(ifindex).ok().and_then(|link| link.xdp);
    match found {
        Some(found) if is_busy => foreign(found.program),
        _ if interface::name(ifindex).is_none() => Unavailable::Device(error),
        _ => Unavailable::Driver(error),
    }
}

fn io_error(error: LoadError) -> io::Error {
    match error {
        LoadError::Privilege { error, .. } | LoadError::Map(error) => error,
        error @ (LoadError::Locked { .. } | LoadError::Refused(_)) => io::Error::other(error),
    }
}

fn number(settings: &Table, at: i16) -> Option<&AtomicU32> {
    settings.view(usize::from(at.unsigned_abs()), 1)?.first()
}

// errno(3), linux/if.h, linux/if_arp.h.
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const IFF_LOOPBACK: u32 = 1 << 3;
const ARPHRD_ETHER: u16 = 1;

#[cfg(test)]
mod tests;
