//! A device: what all groups on it share.

use crate::layout::settings;
use crate::layout::{self, BERTHS, Lanes, PROGRAMS_MAP, SETTINGS_LEN, SETTINGS_MAP, STAMP_MAP};
use crate::program::{self, DockMaps};
use crate::root::root;
use crate::tags::Tags;
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

/// The engine's part of a device that has been taken over: its BPF link, whose BPF program is a
/// root, or that of the only group; the groups' BPF programs; and the settings.
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
        let found = check(ifindex)?;
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
        let nobody = maps.load_root(0, None).map_err(|error| {
            if is_of_old_kernel(&error) {
                Unavailable::Kernel
            } else {
                Unavailable::Load(error)
            }
        })?;
        let tells = || Tags::of(ifindex).is_some_and(|it| maps.load_root(1, Some(it)).is_ok());
        if takes_tags(&found) && !tells() {
            return Err(Unavailable::TakesVlanTags(found.name));
        }
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

    /// The device's descriptors, for [`Device::open`] in another process.
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

    /// The maps with which a group's BPF program on this device is loaded.
    pub fn maps(&self) -> DockMaps<'_> {
        DockMaps {
            ifindex: self.ifindex().unwrap_or(0),
            settings: self.settings.as_fd(),
            stamp: self.stamp.as_fd(),
            link: Some(&self.link),
        }
    }

    /// Sets whether the host loses the packets that no steering program gives it.
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

    /// Whether the host loses the packets that no steering program gives it.
    pub fn steals(&self) -> bool {
        let verdict = number(&self.settings, settings::VERDICT);
        verdict.is_some_and(|it| it.load(Ordering::Acquire) == layout::XDP_DROP)
    }

    /// Gives the device's packets to the groups of these berths alone, each with its BPF program. A
    /// group keeps its berth. Each packet goes to the groups before the change, or to those after
    /// it. After a failure halfway the next call completes the change. One caller at a time.
    ///
    /// One more group takes `CAP_BPF` and `CAP_NET_ADMIN`. One less takes no capability: where no
    /// BPF program can be loaded, the root that is there goes on.
    ///
    /// # Errors
    /// `ENOLINK` when the device is gone; `EPERM` without the capabilities; those of bpf(2).
    pub fn serve(&self, berths: &[(u8, BorrowedFd<'_>)]) -> io::Result<()> {
        for (berth, program) in berths {
            self.programs.put((*berth).into(), &[*program])?;
        }
        let wanted = berths.iter().fold(0, |all, (berth, _)| all | (1 << berth));
        let only = match berths {
            [(_, only)] => Some(*only),
            _ => None,
        };
        self.give_to(wanted, only)?;
        let is_free = |berth: &u32| wanted & (1 << berth) == 0;
        (0..BERTHS)
            .filter(is_free)
            .try_for_each(|berth| self.programs.remove(berth, 1))
    }

    /// Gives the device's packets to the groups of these berths: to a root, or to the BPF program
    /// of the `only` group.
    fn give_to(&self, berths: u32, only: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let root = match self.load_root(berths, only.is_some()) {
            Ok(root) => root,
            Err(_) if berths != 0 && self.root() & berths == berths => return Ok(()),
            Err(_) if only.is_some() => None,
            Err(error) => return Err(io_error(error)),
        };
        let (program, root) = match (root, only) {
            (None, Some(only)) => {
                let only = only.try_clone_to_owned()?;
                (LoadedProgram::open(only, ProgramKind::Xdp)?, 0)
            }
            (root, _) => (root.ok_or(io::ErrorKind::InvalidData)?, berths),
        };
        // Groups' BPF programs look for a stamp from now on. Only a root of several takes one.
        if only.is_none() {
            if let Some(has_root) = number(&self.settings, settings::HAS_ROOT) {
                has_root.store(1, Ordering::SeqCst);
            }
        }
        // Who dies before the last of these steps leaves the root's berths told too few, never too
        // many.
        self.set_root(self.root() & root);
        self.link.replace(&program)?;
        self.set_root(root);
        Ok(())
    }

    /// The root for these berths; `None` where an only group needs none.
    fn load_root(&self, berths: u32, is_only: bool) -> Result<Option<LoadedProgram>, LoadError> {
        let maps = Maps {
            settings: self.settings.as_fd(),
            stamp: self.stamp.as_fd(),
            programs: self.programs.as_fd(),
        };
        if let Some(tags) = self.tags().filter(|_| berths != 0) {
            match maps.load_root(berths, Some(tags)) {
                Ok(root) if self.is_here(tags.ifindex) => return Ok(Some(root)),
                Err(error @ LoadError::Privilege { .. }) => return Err(error),
                // Before Linux 6.16 such a BPF program has no tail calls.
                Ok(_) | Err(_) => {}
            }
        }
        if is_only {
            return Ok(None);
        }
        maps.load_root(berths, None).map(Some)
    }

    /// How BPF programs ask the driver for tags.
    fn tags(&self) -> Option<Tags> {
        let ifindex = self.ifindex().ok().filter(|&it| self.is_here(it))?;
        Tags::of(ifindex)
    }

    /// Whether the device of this index, in the calling thread's network namespace, is the link's.
    /// The link's device may have moved away, and the kernel does not check whether the BPF program
    /// that replaces another is for the same driver.
    pub fn is_here(&self, ifindex: u32) -> bool {
        let found = link::get(ifindex).ok().and_then(|it| it.xdp);
        let own = self.link.program_id().ok();
        found.is_some_and(|it| Some(it.program) == own)
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
    fn load_root(&self, berths: u32, tags: Option<Tags>) -> Result<LoadedProgram, LoadError> {
        let root = root(berths, tags);
        let root: Object = root.map_err(|_| LoadError::Map(io::ErrorKind::Other.into()))?;
        let given = [
            (SETTINGS_MAP, self.settings),
            (STAMP_MAP, self.stamp),
            (PROGRAMS_MAP, self.programs),
        ];
        let device = tags.map_or(0, |tags| tags.ifindex);
        let name = match berths.count_ones() {
            1 => program::NAME,
            _ => "fanpcap_root",
        };
        Loaded::load_for(&root, name, &given, device).map(Loaded::into_program)
    }
}

/// Checks, without privilege, whether the device can be taken over at all.
fn check(ifindex: u32) -> Result<Link, Unavailable> {
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
    Ok(link)
}

/// Whether the device takes tags out of frames, so that an XDP program must ask for them. A veth
/// passes a tag on beside the frame when its peer sends it so, whatever its own setting.
fn takes_tags(link: &Link) -> bool {
    let takes = ethtool::Device::find(link.index).and_then(|device| device.takes_vlan_tags());
    link.kind != "veth" && takes.unwrap_or(false)
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

/// Kernels before Linux 5.18 don't know the flag with which XDP programs are loaded.
fn is_of_old_kernel(error: &LoadError) -> bool {
    let LoadError::Refused(refused) = error else {
        return false;
    };
    refused.error.raw_os_error() == Some(EINVAL)
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
