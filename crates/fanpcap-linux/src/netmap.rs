//! netmap (netmap(4), net/netmap.h of the netmap project): a process gets the rings of a device in
//! memory that it shares with the kernel module, and moves them on by system calls. The interface
//! is that of API version 14.

use crate::errno::check;
use crate::mapping::Mapping;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The device file of the module.
pub const DEVICE: &str = "/dev/netmap";

/// The version of the interface (`NETMAP_API`).
pub const API: u16 = 14;

/// A receive ring of a device. As long as this value lives, the module keeps the ring from the
/// host.
#[derive(Debug)]
pub struct ReceiveRing {
    control: OwnedFd,
    /// The memory of the ring, of other rings, and of their buffers.
    memory: Option<Mapping>,
    /// The offset of the device's `struct netmap_if` in the memory.
    interface: usize,
}

/// The number of a device's receive rings, without those of the host.
///
/// # Errors
/// `ENOENT` without the module; `EACCES` when the process may not open [`DEVICE`]; `ENXIO` when
/// there is no such device; `EINVAL` or `EOPNOTSUPP` when the module has another version of the
/// interface, or does not serve the device.
pub fn receive_rings(device: &str) -> io::Result<u16> {
    let mut info = PortInfo::default();
    request(open()?.as_fd(), PORT_INFO_GET, device, &mut info)?;
    Ok(info.rx_rings)
}

impl ReceiveRing {
    /// Takes a receive ring of the device with this name in the calling thread's network namespace.
    /// Its packets don't come to the host from now on. The transmit rings stay with the host.
    ///
    /// # Errors
    /// As [`receive_rings`]; `EBUSY` when another process has the ring; `ENOMEM` when the module
    /// has no memory left (its parameters `buf_num` and `ring_num`).
    pub fn open(device: &str, ring: u16) -> io::Result<Self> {
        let mut asked = Register {
            ring,
            mode: ONE_RING,
            flags: EXCLUSIVE | RECEIVE_ONLY,
            ..Register::default()
        };
        let control = open()?;
        request(control.as_fd(), REGISTER, device, &mut asked)?;
        let lengths = [asked.memory_len, asked.offset].map(usize::try_from);
        let [Ok(len), Ok(interface)] = lengths else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let memory = Some(Mapping::shared(control.as_raw_fd(), len)?);
        Ok(Self {
            control,
            memory,
            interface,
        })
    }

    /// The memory, and the offset of the device's `struct netmap_if` in it. `None` if it was taken
    /// before.
    pub fn take_memory(&mut self) -> Option<(Mapping, usize)> {
        Some((self.memory.take()?, self.interface))
    }

    /// Gives the slots before the ring's head back to the module, and shows the packets that have
    /// come. Does not wait.
    ///
    /// # Errors
    /// `ENXIO` when the device was removed; `EINVAL` when the ring's words are wrong.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the request takes no argument.
        check(unsafe { libc::ioctl(self.control.as_raw_fd(), SYNC_RECEIVED) })
    }
}

/// poll(2) finds the descriptor readable when the ring has packets. It does what
/// [`ReceiveRing::sync`] does.
impl AsFd for ReceiveRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

fn open() -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).open(DEVICE)?;
    Ok(file.into())
}

/// `struct nmreq_header`.
#[repr(C)]
struct Header {
    version: u16,
    kind: u16,
    reserved: u32,
    name: [u8; NAME_LEN],
    options: u64,
    body: u64,
}

const NAME_LEN: usize = 64;

/// `struct nmreq_port_info_get`.
#[repr(C)]
#[derive(Default)]
struct PortInfo {
    memory_len: u64,
    slots: [u32; 2],
    tx_rings: u16,
    rx_rings: u16,
    host_rings: [u16; 2],
    memory: u16,
    pad: [u16; 3],
}

/// `struct nmreq_register`.
#[repr(C)]
#[derive(Default)]
struct Register {
    offset: u64,
    memory_len: u64,
    slots: [u32; 2],
    rings: [u16; 2],
    host_rings: [u16; 2],
    memory: u16,
    ring: u16,
    mode: u32,
    extra_buffers: u32,
    pad: u32,
    flags: u64,
}

/// A body of a request: a struct of net/netmap.h, to which the module writes.
trait Body {}
impl Body for PortInfo {}
impl Body for Register {}

fn request<T: Body>(
    control: BorrowedFd<'_>,
    kind: u16,
    device: &str,
    body: &mut T,
) -> io::Result<()> {
    let mut name = [0; NAME_LEN];
    // The last byte stays 0.
    let room = name
        .get_mut(..device.len())
        .filter(|it| it.len() < NAME_LEN);
    let room = room.ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(device.as_bytes());
    let mut header = Header {
        version: API,
        kind,
        reserved: 0,
        name,
        options: 0,
        body: (&raw mut *body).expose_provenance() as u64,
    };
    // SAFETY: the module reads and writes the header, and the body at its address, which is the
    // struct of this kind of request. Both live through the call.
    check(unsafe { libc::ioctl(control.as_raw_fd(), CONTROL, &raw mut header) })
}

// net/netmap.h: `NETMAP_REQ_REGISTER`, `NETMAP_REQ_PORT_INFO_GET`, `NR_REG_ONE_NIC`,
// `NR_EXCLUSIVE`, `NR_RX_RINGS_ONLY`.
const REGISTER: u16 = 1;
const PORT_INFO_GET: u16 = 2;
const ONE_RING: u32 = 4;
const EXCLUSIVE: u64 = 0x800;
const RECEIVE_ONLY: u64 = 0x2000;

/// `NIOCCTRL`: _IOWR('i', 151, struct nmreq_header).
const CONTROL: libc::Ioctl =
    (3 << 30) | ((size_of::<Header>() as libc::Ioctl) << 16) | LETTER | 151;
/// `NIOCRXSYNC`: _IO('i', 149).
const SYNC_RECEIVED: libc::Ioctl = LETTER | 149;
const LETTER: libc::Ioctl = 0x69 << 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use std::path::Path;

    #[test]
    fn the_structs_have_the_published_layout() {
        assert_eq!(size_of::<Header>(), 88);
        assert_eq!(
            [offset_of!(Header, name), offset_of!(Header, body)],
            [8, 80]
        );
        assert_eq!(size_of::<PortInfo>(), 32);
        assert_eq!(offset_of!(PortInfo, rx_rings), 18);
        assert_eq!(size_of::<Register>(), 56);
        let fields = [
            offset_of!(Register, memory_len),
            offset_of!(Register, ring),
            offset_of!(Register, mode),
            offset_of!(Register, flags),
        ];
        assert_eq!(fields, [8, 34, 36, 48]);
        assert_eq!([CONTROL, SYNC_RECEIVED], [0xc058_6997, 0x6995]);
    }

    #[test]
    fn without_the_module_there_is_no_device_file() {
        if Path::new(DEVICE).exists() {
            println!("SKIP: this machine has netmap");
            return;
        }
        let errors = [
            receive_rings("lo").map(drop).unwrap_err(),
            ReceiveRing::open("lo", 0).map(drop).unwrap_err(),
        ];
        assert!(errors.iter().all(|it| it.kind() == io::ErrorKind::NotFound));
    }

    #[test]
    fn a_name_that_has_no_room_is_refused() {
        let file = OpenOptions::new().read(true).open("/dev/null").unwrap();
        let ask = |len| {
            let name = "x".repeat(len);
            let error = request(file.as_fd(), REGISTER, &name, &mut Register::default());
            error.unwrap_err().kind() == io::ErrorKind::InvalidInput
        };
        // The last one comes to the kernel, which does not know the request.
        assert_eq!([ask(65), ask(64), ask(63)], [true, true, false]);
    }
}
