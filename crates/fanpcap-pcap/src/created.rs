//! Creates handles, sets their options, and activates them. Also opens savefiles.

use crate::error::{Error, c_text};
use crate::functions::Functions;
use crate::handle::{Handle, NANO, Precision};
use crate::library::Library;
use crate::structs::Pcap;
use std::ffi::{c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;
use std::sync::Arc;

/// A handle before its activation (pcap_create(3PCAP)).
#[derive(Debug)]
pub struct Created(Handle);

/// `PCAP_FANOUT_NEW`.
const FANOUT_NEW: c_int = -1;

impl Library {
    /// Creates a handle on `device` by pcap_create(3PCAP).
    ///
    /// # Errors
    /// Fails with libpcap's message.
    pub fn create(&self, device: &str) -> Result<Created, Error> {
        Created::on(&self.functions, device)
    }

    /// Opens a savefile by pcap_open_offline(3PCAP); `-` is standard input.
    ///
    /// # Errors
    /// Fails with libpcap's message.
    pub fn open_offline(&self, file: &Path, precision: Precision) -> Result<Handle, Error> {
        const CALL: &str = "pcap_open_offline";
        let name = c_text(CALL, file.as_os_str().as_bytes())?;
        let precision = c_uint::from(precision == Precision::Nano);
        let open = self.functions.pcap_open_offline_with_tstamp_precision;
        // SAFETY: `name` is a C string, and `errbuf` is the buffer that the function may write to.
        let open = |errbuf| unsafe { open(name.as_ptr(), precision, errbuf) };
        Handle::new(&self.functions, CALL, open)
    }
}

impl Created {
    pub(crate) fn on(functions: &Arc<Functions>, device: &str) -> Result<Self, Error> {
        let name = c_text("pcap_create", device.as_bytes())?;
        // SAFETY: `name` is a C string, and `errbuf` is the buffer that the function may write to.
        let create = |errbuf| unsafe { (functions.pcap_create)(name.as_ptr(), errbuf) };
        Handle::new(functions, "pcap_create", create).map(Self)
    }

    /// Sets the snaplen in bytes.
    ///
    /// # Errors
    /// The reason of pcap_set_snaplen(3PCAP). Every other setter returns the reason of the libpcap
    /// function that it calls.
    pub fn set_snaplen(&mut self, bytes: i32) -> Result<(), Error> {
        self.set("pcap_set_snaplen", self.functions().pcap_set_snaplen, bytes)
    }

    /// Sets whether the device also receives packets for other hosts.
    ///
    /// # Errors
    /// As [`Created::set_snaplen`].
    pub fn set_promisc(&mut self, promisc: bool) -> Result<(), Error> {
        let function = self.functions().pcap_set_promisc;
        self.set("pcap_set_promisc", function, promisc.into())
    }

    /// Sets the longest time until packets are handed to the application, in milliseconds.
    ///
    /// # Errors
    /// As [`Created::set_snaplen`].
    pub fn set_timeout(&mut self, milliseconds: i32) -> Result<(), Error> {
        let function = self.functions().pcap_set_timeout;
        self.set("pcap_set_timeout", function, milliseconds)
    }

    /// Sets the size of the ring in bytes.
    ///
    /// # Errors
    /// As [`Created::set_snaplen`].
    pub fn set_buffer_size(&mut self, bytes: i32) -> Result<(), Error> {
        let function = self.functions().pcap_set_buffer_size;
        self.set("pcap_set_buffer_size", function, bytes)
    }

    /// Sets whether each packet is handed to the application at once.
    ///
    /// # Errors
    /// As [`Created::set_snaplen`].
    pub fn set_immediate_mode(&mut self, immediate: bool) -> Result<(), Error> {
        let function = self.functions().pcap_set_immediate_mode;
        self.set("pcap_set_immediate_mode", function, immediate.into())
    }

    /// Sets the unit of the fraction of a second in a packet's header.
    ///
    /// # Errors
    /// Fails if the device has no time stamps in nanoseconds.
    pub fn set_tstamp_precision(&mut self, precision: Precision) -> Result<(), Error> {
        let function = self.functions().pcap_set_tstamp_precision;
        let precision = if precision == Precision::Nano {
            NANO
        } else {
            0
        };
        self.set("pcap_set_tstamp_precision", function, precision)
    }

    /// pcap_fanout(3PCAP): lets the handle join the group at activation.
    ///
    /// Without `group` the kernel picks an unused group. Without `mode` the settings give the mode.
    /// If the settings have no mode, the handle gets the mode that the group already has. A group
    /// without members gets mode `flow`, or `hash` if `flow` can't be loaded.
    ///
    /// # Errors
    /// Fails if the library has no such function, or if the mode is unknown.
    pub fn fanout(&mut self, group: Option<u16>, mode: Option<&str>) -> Result<(), Error> {
        const CALL: &str = "pcap_fanout";
        let Some(function) = self.functions().pcap_fanout else {
            return Err(Error::new(CALL, "this libpcap has no such function"));
        };
        let mode = mode.map(|mode| c_text(CALL, mode.as_bytes())).transpose()?;
        let mode = mode.as_ref().map_or(null(), |mode| mode.as_ptr());
        let group = group.map_or(FANOUT_NEW, c_int::from);
        // SAFETY: the handle is open, and the mode null or a C string.
        let status = unsafe { function(self.0.p(), group, mode) };
        self.0.done(CALL, status).map(drop)
    }

    /// Activates the handle by pcap_activate(3PCAP). Returns the handle and, if libpcap warns, the
    /// text of the warning.
    ///
    /// # Errors
    /// Fails with libpcap's message.
    pub fn activate(self) -> Result<(Handle, Option<String>), Error> {
        // SAFETY: the handle is open and not yet activated.
        let status = unsafe { (self.functions().pcap_activate)(self.0.p()) };
        let said = (status != 0).then(|| self.0.said(status));
        if status < 0 {
            return Err(Error::new("pcap_activate", said.unwrap_or_default()));
        }
        Ok((self.0, said))
    }

    fn functions(&self) -> &Functions {
        &self.0.open.functions
    }

    fn set(
        &self,
        call: &'static str,
        function: unsafe extern "C-unwind" fn(*mut Pcap, c_int) -> c_int,
        value: c_int,
    ) -> Result<(), Error> {
        // SAFETY: the handle is open; setters of this type take any number.
        match unsafe { function(self.0.p(), value) } {
            0 => Ok(()),
            status => Err(Error::new(call, self.0.said(status))),
        }
    }
}
