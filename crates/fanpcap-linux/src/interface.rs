//! Network interfaces of the calling thread's network namespace: names and indices
//! (if_nametoindex(3)).

use crate::errno::check;
use std::ffi::{CStr, CString, c_int, c_short};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, mem};

/// Returns the index of an interface, 1 or more; `None` when no interface has the name.
///
/// A name with a colon is an alias name, such as `eth0:1`, and has no index. if_nametoindex(3)
/// would return the index of `eth0`, because the kernel's ioctl cuts the name at the colon.
///
/// # Errors
/// The errors of if_nametoindex(3), except those for a missing interface: for example `EMFILE`.
pub fn find(name: &str) -> io::Result<Option<u32>> {
    let name = CString::new(name).ok().filter(|_| !name.contains(':'));
    let Some(name) = name else {
        return Ok(None);
    };
    // SAFETY: `name` is a C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => unless_none(io::Error::last_os_error()),
        index => Ok(Some(index)),
    }
}

/// Returns the index of an interface; `None` if no interface has the name, or if the call fails.
pub fn index(name: &str) -> Option<u32> {
    find(name).ok().flatten()
}

/// Returns the name of the interface with this index; `None` when no interface has the index.
///
/// # Errors
/// As [`find`].
pub fn find_name(index: u32) -> io::Result<Option<String>> {
    let mut buffer = [0; libc::IF_NAMESIZE];
    // SAFETY: `buffer` has the IF_NAMESIZE bytes that the call may write.
    let name = unsafe { libc::if_indextoname(index, buffer.as_mut_ptr()) };
    if name.is_null() {
        return unless_none(io::Error::last_os_error());
    }
    // SAFETY: on success the call has written a C string to `buffer`, which is live.
    let name = unsafe { CStr::from_ptr(name) };
    Ok(Some(name.to_string_lossy().into_owned()))
}

/// Returns the name of an interface; `None` if no interface has the index, or if the call fails.
pub fn name(index: u32) -> Option<String> {
    find_name(index).ok().flatten()
}

/// Converts the kernel's errors for a missing interface to `None`.
fn unless_none<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => Ok(None),
        _ => Err(error),
    }
}

/// Returns the names of all interfaces; empty when the call fails.
pub fn names() -> Vec<String> {
    // SAFETY: the call has no preconditions. The result is null, or an array that ends with a null
    // name.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Vec::new();
    }
    let mut names = Vec::new();
    let mut entry = list;
    loop {
        // SAFETY: `entry` is in the array. The check below finds the array's end.
        let name = unsafe { *entry }.if_name;
        if name.is_null() {
            break;
        }
        names.push(
            // SAFETY: the names in the array are C strings.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned(),
        );
        entry = entry.wrapping_add(1);
    }
    // SAFETY: `list` came from if_nameindex and is freed only once.
    unsafe { libc::if_freenameindex(list) };
    names
}

/// Whether an interface is up (`SIOCGIFFLAGS`). `index` is an index in the network namespace of
/// `socket`, even if the calling thread has changed to another namespace.
///
/// # Errors
/// `ENODEV` or `ENXIO` when the interface is gone.
pub fn is_up(socket: BorrowedFd<'_>, index: u32) -> io::Result<bool> {
    let mut request = named(socket, index)?;
    // SAFETY: the request is live for the call, which fills its flags.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
    if !unless_renamed(check(asked))? {
        return Ok(false);
    }
    // SAFETY: the call has written the flags, and any bits are valid.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(c_int::from(flags) & libc::IFF_UP != 0)
}

/// Sets or clears an interface's promiscuous flag (`SIOCSIFFLAGS`). The flag outlives the process;
/// a packet socket's membership (`PACKET_MR_PROMISC`) does not. Returns whether the flag has
/// changed.
///
/// # Errors
/// `ENODEV` when the interface is gone, `EPERM` without `CAP_NET_ADMIN`.
pub fn set_promiscuous(socket: BorrowedFd<'_>, index: u32, promiscuous: bool) -> io::Result<bool> {
    let mut request = named(socket, index)?;
    // SAFETY: the request is live for the call, which fills its flags.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) })?;
    // SAFETY: the call has written the flags, and any bits are valid.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    let flag = c_short::try_from(libc::IFF_PROMISC).unwrap_or(0);
    let wanted = if promiscuous {
        flags | flag
    } else {
        flags & !flag
    };
    if wanted == flags {
        return Ok(false);
    }
    request.ifr_ifru.ifru_flags = wanted;
    // SAFETY: the request is live for the call, which only reads it.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) })?;
    Ok(true)
}

/// Returns a request with the present name of the interface, for an ioctl about it.
fn named(socket: BorrowedFd<'_>, index: u32) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq is plain data; zeros are valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = c_int::try_from(index).unwrap_or(c_int::MAX);
    // SAFETY: the request is live for the call, which fills its name.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFNAME, &raw mut request) })?;
    Ok(request)
}

/// Returns false if the kernel no longer has an interface with the name that was read just before.
/// Either the interface was renamed: older kernels allow this only while the interface is down
/// (net/core/dev.c, `dev_change_name`). Or the interface is gone: the next call reports this.
fn unless_renamed(asked: io::Result<()>) -> io::Result<bool> {
    match asked {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        asked => asked.map(|()| true),
    }
}

/// The message about a device that does not exist.
pub fn missing(name: &str) -> String {
    format!("no device '{name}' in this network namespace: 'ip link' lists them")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_loopback_device_is_there_by_all_three() {
        let index = super::index("lo").unwrap();
        assert_eq!(super::name(index).as_deref(), Some("lo"));
        assert!(super::names().iter().any(|name| name == "lo"));
        assert_eq!(super::index("no such name"), None);
        assert_eq!(super::index("lo:1"), None);
    }

    #[test]
    fn an_interface_that_is_gone_is_an_error_and_one_without_its_name_is_down() {
        use std::os::fd::AsFd;
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let index = super::index("lo").unwrap();
        assert!(super::is_up(socket.as_fd(), index).unwrap());
        let gone = super::is_up(socket.as_fd(), 0x7fff_fff0).unwrap_err();
        let errors = [libc::ENODEV, libc::ENXIO].map(Some);
        assert!(errors.contains(&gone.raw_os_error()), "{gone}");
        // The interface was renamed after its name was read.
        let renamed = || Err(std::io::Error::from_raw_os_error(libc::ENODEV));
        assert!(!super::unless_renamed(renamed()).unwrap());
        let refused = Err(std::io::Error::from_raw_os_error(libc::EBADF));
        assert!(super::unless_renamed(refused).is_err());
        assert!(super::unless_renamed(Ok(())).unwrap());
    }
}
