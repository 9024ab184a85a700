//! BPF links. A BPF program stays attached to a device while a process has the link open.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::info::{self, Described};
use super::{Attributes, LoadedProgram, bpf, number};
use crate::errno::owned;

/// The place at which the kernel runs a BPF program for a device's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// The network stack's hook. It runs after the kernel has made an skb of the frame. Every
    /// device has this hook.
    Generic,
    /// The driver's hook. It runs before the kernel makes an skb.
    Driver,
    /// The hook for sent packets in the device's traffic control (tcx, since Linux 6.6). Several
    /// BPF programs can be attached there.
    Egress,
}

/// A BPF program attached to a device. The kernel detaches the BPF program when the last descriptor
/// of the link is closed, in this process and in others.
#[derive(Debug)]
pub struct Attached {
    link: OwnedFd,
}

impl LoadedProgram {
    /// Attaches the BPF program to a device of the calling thread's network namespace.
    ///
    /// # Errors
    /// - `EBUSY` when the device has an XDP program that was attached by a link.
    /// - `EEXIST` when the device has an XDP program that was attached without a link.
    /// - `EOPNOTSUPP` when the device's driver lacks XDP.
    /// - `EINVAL` or `ERANGE` when the device's settings do not allow XDP.
    /// - `EINVAL` also when the kernel lacks the hook.
    pub fn attach(&self, ifindex: u32, hook: Hook) -> io::Result<Attached> {
        let (kind, flags) = match hook {
            Hook::Generic => (ATTACH_XDP, 1 << 1), // XDP_FLAGS_SKB_MODE
            Hook::Driver => (ATTACH_XDP, 1 << 2),  // XDP_FLAGS_DRV_MODE
            Hook::Egress => (ATTACH_TCX_EGRESS, 0),
        };
        let mut attr = LinkCreate {
            program: self.as_fd().as_raw_fd().unsigned_abs(),
            ifindex,
            kind,
            flags,
            ..LinkCreate::default()
        };
        let link = owned(bpf(BPF_LINK_CREATE, &mut attr)?)?;
        Ok(Attached { link })
    }
}

impl Attached {
    /// Opens the link behind `fd`, which comes from another process. The link must attach a BPF
    /// program to this hook.
    ///
    /// # Errors
    /// `InvalidData` when `fd` is not such a link.
    pub fn open(fd: OwnedFd, hook: Hook) -> io::Result<Self> {
        let attached = Self { link: fd };
        let kind = match hook {
            Hook::Generic | Hook::Driver => LINK_XDP,
            Hook::Egress => LINK_TCX,
        };
        // The kernel's description of a map or of a BPF program may have the same number as its
        // kind. So this code first checks that the descriptor is a link.
        if attached.is_link() && attached.info()?.kind == kind {
            return Ok(attached);
        }
        let text = "the descriptor is not a BPF link of the expected type";
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }

    /// Duplicates the descriptor of the link.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.link.try_clone().map(|link| Self { link })
    }

    /// Replaces the BPF program. During the change, either the old or the new BPF program handles
    /// each packet.
    ///
    /// # Errors
    /// `ENOLINK` when the device is gone or the link was detached.
    pub fn replace(&self, program: &LoadedProgram) -> io::Result<()> {
        self.update(program.as_fd().as_raw_fd().unsigned_abs())
    }

    /// Whether the descriptor is a link. Tries to update the link to a BPF program whose descriptor
    /// can't be open. The kernel checks the link first, so the error is `EBADF` only for a link
    /// (kernel/bpf/syscall.c, `link_update`). /proc shows the kind of a descriptor, too, but may be
    /// missing if the application has changed its root directory.
    fn is_link(&self) -> bool {
        let error = self.update(u32::MAX).err();
        error.is_some_and(|error| error.raw_os_error() == Some(libc::EBADF))
    }

    fn update(&self, program: u32) -> io::Result<()> {
        let mut attr = LinkUpdate {
            link: number(&self.link),
            program,
            flags: 0,
            old: 0,
        };
        bpf(BPF_LINK_UPDATE, &mut attr).map(drop)
    }

    /// Detaches the BPF program, even if other processes have the link open.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for hooks whose links can't be detached.
    pub fn detach(&self) -> io::Result<()> {
        let mut attr = LinkDetach {
            link: number(&self.link),
        };
        bpf(BPF_LINK_DETACH, &mut attr).map(drop)
    }

    /// The index of the device; 0 when the device is gone or the BPF program was detached.
    ///
    /// # Errors
    /// No known kernel returns an error.
    pub fn ifindex(&self) -> io::Result<u32> {
        self.info().map(|info| info.ifindex)
    }

    /// The kernel's id of the BPF program.
    ///
    /// # Errors
    /// No known kernel returns an error.
    pub fn program_id(&self) -> io::Result<u32> {
        self.info().map(|info| info.program)
    }

    fn info(&self) -> io::Result<LinkInfo> {
        info::of(self.link.as_fd())
    }
}

impl AsFd for Attached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// Whether BPF programs are attached to the hook for received packets in the device's traffic
/// control (tcx). False if the kernel does not have this hook, or does not let this process query
/// it.
pub fn has_ingress_programs(ifindex: u32) -> bool {
    let mut attr = ProgramQuery {
        ifindex,
        kind: ATTACH_TCX_INGRESS,
        ..ProgramQuery::default()
    };
    bpf(BPF_PROG_QUERY, &mut attr).is_ok() && attr.count > 0
}

// SAFETY: `query` of union bpf_attr. Its addresses are 0, so the kernel writes only the counts.
unsafe impl Attributes for ProgramQuery {}
// SAFETY: `link_create` of union bpf_attr, without addresses.
unsafe impl Attributes for LinkCreate {}
// SAFETY: `link_update` of union bpf_attr, without addresses.
unsafe impl Attributes for LinkUpdate {}
// SAFETY: `link_detach` of union bpf_attr, without addresses.
unsafe impl Attributes for LinkDetach {}
// SAFETY: the beginning of struct bpf_link_info. For links to devices it has no addresses.
unsafe impl Described for LinkInfo {}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    kind: u32,
    flags: u32,
    /// Used only for tcx. The BPF program before or after which this BPF program runs; 0 makes this
    /// BPF program run last.
    beside: u32,
    padding: u32,
    revision: u64,
}

/// The struct ends with the field `revision`, because the kernel also writes to that field.
#[repr(C)]
#[derive(Default)]
struct ProgramQuery {
    ifindex: u32,
    kind: u32,
    flags: [u32; 2],
    programs: u64,
    count: u32,
    padding: u32,
    links: [u64; 3],
    revision: u64,
}

#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old: u32,
}

#[repr(C)]
struct LinkDetach {
    link: u32,
}

/// The part of struct bpf_link_info that is used here.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    /// The index of the device for XDP and tcx; 0 when the device is gone.
    ifindex: u32,
    attached_as: u32,
}

const BPF_PROG_QUERY: libc::c_long = 16;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_LINK_UPDATE: libc::c_long = 29;
const BPF_LINK_DETACH: libc::c_long = 34;

/// enum bpf_attach_type.
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_INGRESS: u32 = 46;
const ATTACH_TCX_EGRESS: u32 = 47;
/// enum bpf_link_type.
const LINK_XDP: u32 = 6;
const LINK_TCX: u32 = 11;

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_bpf::{Instruction, ProgramKind};

    fn verdict(verdict: i32) -> LoadedProgram {
        let code = [Instruction::set(0, verdict), Instruction::exit()];
        LoadedProgram::load(ProgramKind::Xdp, "verdict", &code).unwrap()
    }

    #[test]
    #[ignore = "needs root: eBPF, a network namespace"]
    fn a_link_is_known_without_the_files_of_proc() {
        let own_namespace = || {
            // SAFETY: takes plain numbers; namespace and root directory are this thread's alone.
            let rc = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_FS) };
            assert_eq!(rc, 0);
            let index = crate::interface::index("lo").unwrap();
            let program = verdict(2);
            let attached = program.attach(index, Hook::Generic).unwrap();
            let room = std::env::temp_dir().join(format!("fanpcap-link.{}", std::process::id()));
            std::fs::create_dir(&room).unwrap();
            std::os::unix::fs::chroot(&room).unwrap();
            let open = |fd: BorrowedFd<'_>, hook| Attached::open(fd.try_clone_to_owned()?, hook);
            let file = std::fs::File::open("/").unwrap();
            assert!(open(file.as_fd(), Hook::Generic).is_err());
            assert!(open(program.as_fd(), Hook::Generic).is_err());
            assert!(open(attached.as_fd(), Hook::Egress).is_err());
            let again = open(attached.as_fd(), Hook::Generic).unwrap();
            assert_eq!(again.program_id().unwrap(), program.id().unwrap());
            room
        };
        let room = std::thread::spawn(own_namespace).join().unwrap();
        std::fs::remove_dir(room).unwrap();
    }

    #[test]
    #[ignore = "needs root: eBPF, a network namespace, tcx (Linux 6.6)"]
    fn programs_that_get_what_a_device_receives_are_seen() {
        let own_namespace = || {
            // SAFETY: takes plain numbers; the namespace is this thread's alone.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            let index = crate::interface::index("lo").unwrap();
            let code = [Instruction::set(0, -1), Instruction::exit()];
            let next = LoadedProgram::load(ProgramKind::SchedCls, "next", &code).unwrap();
            let Ok(sends) = next.attach(index, Hook::Egress) else {
                println!("SKIP: the kernel lacks tcx (BPF programs in traffic control, Linux 6.6)");
                return;
            };
            assert!(!has_ingress_programs(index));
            let mut attr = LinkCreate {
                program: next.as_fd().as_raw_fd().unsigned_abs(),
                ifindex: index,
                kind: ATTACH_TCX_INGRESS,
                ..LinkCreate::default()
            };
            let receives = owned(bpf(BPF_LINK_CREATE, &mut attr).unwrap()).unwrap();
            assert!(has_ingress_programs(index));
            drop((sends, receives));
            assert!(!has_ingress_programs(index));
        };
        std::thread::spawn(own_namespace).join().unwrap();
    }

    #[test]
    #[ignore = "needs root: eBPF, a network namespace"]
    fn a_link_is_replaced_and_detached_without_privilege() {
        let own_namespace = || {
            // SAFETY: takes plain numbers; the namespace is this thread's alone.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            let index = crate::interface::index("lo").unwrap();
            let first = verdict(2);
            let attached = first.attach(index, Hook::Generic).unwrap();
            let found = crate::netlink::link::get(index).unwrap().xdp.unwrap();
            assert_eq!(found.program, first.id().unwrap());
            assert_eq!(
                super::super::program_name(found.program).unwrap(),
                "verdict"
            );
            let busy = verdict(2).attach(index, Hook::Generic).unwrap_err();
            assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
            let no_driver = verdict(2).attach(index, Hook::Driver).unwrap_err();
            assert!(no_driver.raw_os_error().is_some());
            let second = verdict(1);
            // SAFETY: takes plain numbers. The raw system call changes the user of this thread
            // alone.
            let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            assert_eq!(rc, 0);
            attached.replace(&second).unwrap();
            assert_eq!(attached.program_id().unwrap(), second.id().unwrap());
            let sent = attached.as_fd().try_clone_to_owned().unwrap();
            let other = second.as_fd().try_clone_to_owned().unwrap();
            assert!(Attached::open(other, Hook::Generic).is_err());
            let received = Attached::open(sent, Hook::Generic).unwrap();
            assert_eq!(received.ifindex().unwrap(), index);
            received.detach().unwrap();
            assert_eq!(attached.ifindex().unwrap(), 0);
            assert_eq!(crate::netlink::link::get(index).unwrap().xdp, None);
            assert!(attached.replace(&second).is_err());
        };
        std::thread::spawn(own_namespace).join().unwrap();
    }
}
