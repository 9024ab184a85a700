//! A device that the engine has taken over: the objects that all groups on the device share.

use crate::layout::{self, GROUP_SLOTS, SETTINGS_LEN, XDP_DROP, XDP_PASS, settings};
use crate::own::Own;
use crate::program::DeviceMaps;
use crate::root::Tags;
use crate::selection::{Behind, Selection};
use crate::unavailable::Unavailable;
use fanpcap_bpf::{MapKind, ProgramKind};
use fanpcap_linux::bpf::{self, Attached, Hook, LoadError, LoadedProgram, Map, ObjectArray, Table};
use fanpcap_linux::netlink::link::{self, Link, xdp_mode};
use fanpcap_linux::process::cpu;
use fanpcap_linux::{ethtool, interface};
use fanpcap_ring::pool::PoolShape;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The operations that the registry needs from a device. A trait lets tests use a device without
/// BPF programs.
pub trait ServedDevice: Sized {
    /// Opens the device from these descriptors, which are in the order of
    /// [`ServedDevice::descriptors`].
    ///
    /// # Errors
    /// `NotFound` when the device's BPF program has been detached.
    fn of(descriptors: Vec<OwnedFd>, ifindex: u32) -> io::Result<Self>;

    /// The descriptors that another process needs for [`ServedDevice::of`].
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Gives the device's packets to the groups in these group slots and to no other groups,
    /// through each group's BPF program. A failed call can be repeated.
    ///
    /// # Errors
    /// The errors of bpf(2).
    fn serve(&self, slots: &[(u8, BorrowedFd<'_>)]) -> io::Result<()>;

    /// Sets whether the host loses the device's packets.
    fn set_steals(&self, steals: bool);
}

/// The XDP engine's part of a device that it has taken over: its BPF link, the groups' BPF programs
/// and the settings. The link runs a root, or the BPF program of the only group. If the engine is
/// behind the selection of a cluster's node, the link is the selection's link.
///
/// Each member's process must keep these objects open. When no process has them open any more, the
/// kernel detaches the link's BPF program and drops the groups' BPF programs. Behind a selection,
/// the node's BPF program stays attached.
pub struct Device {
    link: Attached,
    behind: Option<Behind>,
    own: Own,
}

/// The group slot of the first group.
const FIRST: u32 = 1;

/// The most group slots without a group that a root serves. Each costs a BPF function's call and a
/// look into the array of BPF programs for each packet.
const UNUSED_MAX: u32 = 2;

/// A device that can probably be taken over. Only an attempt shows whether it can.
pub struct Untaken {
    link: Link,
    selection: Option<Selection>,
}

impl Untaken {
    /// Finds the device with this index in the calling thread's network namespace. `selection` is
    /// that of a cluster's node on this device; the engine will be behind it. This function is fast
    /// and needs no capability.
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub fn find(ifindex: u32, selection: Option<Selection>) -> Result<Self, Unavailable> {
        pool_shape()?;
        let link = check(ifindex)?;
        // Another process may have detached the selection since it was opened.
        let selection = selection.filter(|_| link.xdp.is_some());
        if let Some(xdp) = link.xdp {
            if !selection.as_ref().is_some_and(|it| it.is_free(xdp.program)) {
                return Err(foreign(xdp.program));
            }
            if xdp.mode == xdp_mode::GENERIC {
                return Err(Unavailable::Driver(io::ErrorKind::Unsupported.into()));
            }
        }
        Ok(Self { link, selection })
    }

    /// Takes over the device. The device's driver may need a while to attach the BPF program.
    ///
    /// # Errors
    /// See [`Unavailable`]. `Foreign` if another process has taken the device first.
    pub fn take_over(self) -> Result<Device, Unavailable> {
        let Self { link, selection } = self;
        let ifindex = link.index;
        let own = Own::new()?;
        // Behind a selection, the engine's BPF program is in a program array. A BPF program that
        // asks for tags can't be in a program array.
        let tags = Tags::of(ifindex).filter(|_| selection.is_none());
        let first = tags.and_then(|it| own.load_root(FIRST, Some(it)).ok());
        // If the root asks for tags, the device gets the root of the first group at once, because
        // the kernel waits for running BPF programs whenever a device's BPF program changes.
        let root = if first.is_some() { FIRST } else { 0 };
        let program = first.map_or_else(|| own.nobody(), Ok)?;
        if takes_tags(&link) && root == 0 {
            return Err(Unavailable::TakesVlanTags(link.name));
        }
        let (link, behind) = match selection {
            None => (attach(ifindex, &program)?, None),
            Some(selection) => {
                let (link, behind) = selection.take(&program).map_err(Unavailable::Load)?;
                (link, Some(behind))
            }
        };
        let device = Device { link, behind, own };
        device.set_root(root);
        Ok(device)
    }
}

/// Returns the shape of new pools on this machine.
///
/// # Errors
/// [`Unavailable::Realtime`], [`Unavailable::Cpus`], or [`Unavailable::Device`] if the CPUs can't
/// be counted.
pub fn pool_shape() -> Result<PoolShape, Unavailable> {
    if cpu::is_realtime() {
        return Err(Unavailable::Realtime);
    }
    let possible = cpu::possible().map_err(Unavailable::Device)?;
    let online = cpu::online().map_err(Unavailable::Device)?;
    PoolShape::for_cpus(possible, online).ok_or(Unavailable::Cpus(possible))
}

impl Device {
    /// The device's index; 0 if the device is gone, or if its BPF program is detached.
    ///
    /// # Errors
    /// No known kernel returns an error.
    pub fn ifindex(&self) -> io::Result<u32> {
        self.link.ifindex()
    }

    /// Returns the maps that the engine needs to load a group's BPF program for this device.
    pub fn maps(&self) -> DeviceMaps<'_> {
        DeviceMaps {
            ifindex: self.ifindex().unwrap_or(0),
            settings: self.own.settings.as_fd(),
            stamp: self.own.stamp.as_fd(),
            link: Some(&self.link),
        }
    }

    /// Gives the device's packets to the groups of these group slots. The device runs a root, or
    /// directly the BPF program of the `only` group.
    fn give_to(&self, group_slots: u32, only: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let is_served = match only {
            // The device runs the root of the only group, and finds the group's BPF program.
            Some(_) => self.root() == group_slots,
            None => self.has_root_for(group_slots),
        };
        if is_served {
            return self.check_link();
        }
        let root = match self.load_root(group_slots, only.is_some()) {
            Ok(root) => root,
            Err(_) if group_slots != 0 && self.root() & group_slots == group_slots => return Ok(()),
            Err(_) if only.is_some() => None,
            Err(error) => return Err(io_error(error)),
        };
        let (program, root) = match (root, only) {
            (None, Some(only)) => {
                let only = only.try_clone_to_owned()?;
                (LoadedProgram::open(only, ProgramKind::Xdp)?, 0)
            }
            (root, _) => (root.ok_or(io::ErrorKind::InvalidData)?, group_slots),
        };
        // Makes the groups' BPF programs read the root's stamp. Only a root for several groups
        // stores a stamp.
        if only.is_none() {
            self.own.set(settings::HAS_ROOT, 1);
        }
        // The settings must never name a group slot that the attached root does not serve. So this
        // code first removes group slots from the settings, then attaches the root, then adds group
        // slots to the settings. If the process dies between these steps, the settings only lack
        // group slots.
        self.set_root(self.root() & root);
        match &self.behind {
            None => self.link.replace(&program)?,
            Some(behind) => {
                self.check_link()?;
                behind.run(&program)?;
            }
        }
        self.set_root(root);
        Ok(())
    }

    /// Whether the device runs a root that serves these group slots, and at most [`UNUSED_MAX`]
    /// group slots more. So most groups come and go without another root: members that attach one
    /// hold the kernel's lock for network devices, for which members of other groups would wait.
    fn has_root_for(&self, group_slots: u32) -> bool {
        let root = self.root();
        let is_for_several = root.count_ones() > 1 && root & group_slots == group_slots;
        let unused = (root & !group_slots).count_ones();
        is_for_several && group_slots != 0 && unused <= UNUSED_MAX
    }

    /// Checks that the device is not gone, and that its BPF program is attached.
    fn check_link(&self) -> io::Result<()> {
        match self.ifindex()? {
            0 => Err(io::Error::from_raw_os_error(ENOLINK)),
            _ => Ok(()),
        }
    }

    /// Loads the root for these group slots. `None` if a single group needs no root, so that the
    /// device can run the group's BPF program directly.
    fn load_root(
        &self,
        group_slots: u32,
        is_only: bool,
    ) -> Result<Option<LoadedProgram>, LoadError> {
        if let Some(tags) = self.tags().filter(|_| group_slots != 0) {
            match self.own.load_root(group_slots, Some(tags)) {
                Ok(root) if self.is_here(tags.ifindex) => return Ok(Some(root)),
                Err(error @ LoadError::Privilege { .. }) => return Err(error),
                // Before Linux 6.16, a BPF program that asks for tags can't use tail calls. So the
                // code below does without a root that asks for tags.
                Ok(_) | Err(_) => {}
            }
        }
        if is_only {
            return Ok(None);
        }
        self.own.load_root(group_slots, None).map(Some)
    }

    /// Returns how the device's root asks the driver for tags; `None` if the root can't ask.
    fn tags(&self) -> Option<Tags> {
        if self.behind.is_some() {
            return None;
        }
        let ifindex = self.ifindex().ok().filter(|&it| self.is_here(it))?;
        Tags::of(ifindex)
    }

    /// Whether the link's device is the device with this index in the calling thread's network
    /// namespace. False if the link's device was moved to another namespace. The kernel would let a
    /// BPF program for one driver replace a BPF program on a device of another driver, so the
    /// engine must check this.
    pub fn is_here(&self, ifindex: u32) -> bool {
        let found = link::get(ifindex).ok().and_then(|it| it.xdp);
        let own = self.link.program_id().ok();
        found.is_some_and(|it| Some(it.program) == own)
    }

    /// The group slots of the device's root; 0 without a root.
    fn root(&self) -> u32 {
        self.own.get(settings::ROOT)
    }

    fn set_root(&self, group_slots: u32) {
        self.own.set(settings::ROOT, group_slots);
    }
}

impl ServedDevice for Device {
    /// Opens the device from [`Device::descriptors`] of another process. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` when the descriptors are not those of this device.
    fn of(descriptors: Vec<OwnedFd>, ifindex: u32) -> io::Result<Self> {
        let mut all = descriptors.into_iter();
        let mut next = || all.next().ok_or(io::ErrorKind::InvalidData);
        let [link, programs, settings, stamp] = [next()?, next()?, next()?, next()?];
        let behind = match <[OwnedFd; 2]>::try_from(all.collect::<Vec<_>>()) {
            Ok([entry, turn]) => Some(Behind {
                entry: ObjectArray::open(entry, MapKind::ProgArray, 1)?,
                turn,
            }),
            Err(rest) if rest.is_empty() => None,
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        let device = Self {
            link: Attached::open(link, Hook::Driver)?,
            behind,
            own: Own {
                programs: ObjectArray::open(programs, MapKind::ProgArray, GROUP_SLOTS)?,
                settings: Table::open_rows(settings, SETTINGS_LEN)?,
                stamp: Map::given(stamp.as_fd(), &layout::stamp())?,
            },
        };
        match device.ifindex()? {
            // The device has been removed, or its BPF program has been detached.
            0 => Err(io::ErrorKind::NotFound.into()),
            found if found == ifindex => Ok(device),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The device's descriptors, for [`Device::of`] in another process.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = vec![
            self.link.as_fd(),
            self.own.programs.as_fd(),
            self.own.settings.as_fd(),
            self.own.stamp.as_fd(),
        ];
        if let Some(Behind { entry, turn }) = &self.behind {
            all.extend([entry.as_fd(), turn.as_fd()]);
        }
        all
    }

    /// Gives the device's packets to the groups of these group slots and to no other groups,
    /// through each group's BPF program. A group must have the same group slot in every call. Each
    /// packet goes either to the groups that were served before the change, or to the groups that
    /// are served after it. If a call fails halfway, the next call completes the change. Only one
    /// process at a time, and only one thread of it, may call this function for a device.
    ///
    /// Adding a group needs `CAP_BPF` and `CAP_NET_ADMIN`. Removing a group needs no capability: if
    /// no new root can be loaded, the present root stays attached, but no longer finds the BPF
    /// program of the removed group.
    ///
    /// # Errors
    /// `ENOLINK` when the device is gone; `EPERM` without the capabilities; errors of bpf(2).
    fn serve(&self, group_slots: &[(u8, BorrowedFd<'_>)]) -> io::Result<()> {
        for (group_slot, program) in group_slots {
            self.own.programs.put((*group_slot).into(), &[*program])?;
        }
        let numbers = group_slots.iter().map(|(group_slot, _)| group_slot);
        let wanted = numbers.fold(0, |all, group_slot| all | (1 << group_slot));
        let only = match group_slots {
            [(_, only)] => Some(*only),
            _ => None,
        };
        self.give_to(wanted, only)?;
        let mut free = (0..GROUP_SLOTS).filter(|group_slot| wanted & (1 << group_slot) == 0);
        free.try_for_each(|group_slot| self.own.programs.remove(group_slot, 1))
    }

    /// Sets whether the host loses packets on which no steering program decides.
    fn set_steals(&self, steals: bool) {
        let verdict = if steals { XDP_DROP } else { XDP_PASS };
        self.own.set(settings::VERDICT, verdict);
    }
}

/// Checks without privilege whether the engine can take over the device.
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
    Ok(link)
}

/// Whether the device strips tags from frames, so that an XDP program must ask for the tags. False
/// for a veth: whether a tag is stored beside its frames depends on the peer's setting, not on its
/// own.
pub fn takes_tags(link: &Link) -> bool {
    let takes = ethtool::Device::find(link.index).and_then(|device| device.takes_vlan_tags());
    link.kind != "veth" && takes.unwrap_or(false)
}

fn foreign(id: u32) -> Unavailable {
    let name = bpf::program_name(id).ok();
    Unavailable::Foreign { name, id }
}

/// Attaches the BPF program. If another BPF program prevents this, but is no longer attached
/// afterwards, tries once more.
fn attach(ifindex: u32, program: &LoadedProgram) -> Result<Attached, Unavailable> {
    let attach = || program.attach(ifindex, Hook::Driver);
    let is_busy = |error: &io::Error| matches!(error.raw_os_error(), Some(EBUSY | EEXIST));
    let other = || link::get(ifindex).ok().and_then(|link| link.xdp);
    let attached = match attach() {
        Err(error) if is_busy(&error) && other().is_none() => attach(),
        attached => attached,
    };
    attached.map_err(|error| match other() {
        Some(found) if is_busy(&error) => foreign(found.program),
        _ if interface::name(ifindex).is_none() => Unavailable::Device(error),
        _ => Unavailable::Driver(error),
    })
}

fn io_error(error: LoadError) -> io::Error {
    match error {
        LoadError::Privilege { error, .. } | LoadError::Map(error) => error,
        error @ (LoadError::Locked { .. } | LoadError::Refused(_)) => io::Error::other(error),
    }
}

// errno(3), linux/if.h, linux/if_arp.h.
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOLINK: i32 = 67;
const IFF_LOOPBACK: u32 = 1 << 3;
const ARPHRD_ETHER: u16 = 1;

#[cfg(test)]
mod tests;
