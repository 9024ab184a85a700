//! The traits through which a handle uses the system's library, the reader and its group. Tests
//! implement them with fakes.

use crate::request::Request;
use fanpcap_bpf::Classic;
use fanpcap_config::driver::Driver;
use fanpcap_config::mode::Mode;
use fanpcap_config::settings::{GroupChoice, OnEngine, Polled, Steal};
use fanpcap_config::steering::{PcapCompiler, Steering};
use fanpcap_group::identity::Stranger;
use fanpcap_group::join::{JoinError, Runs};
use fanpcap_group::record::NoFlow;
use fanpcap_group::rejecting::Rejections;
use fanpcap_group::steered::{Filtering, SteerError, Steered, Unchanging};
use fanpcap_linux::packet::Filter;
use fanpcap_nic::placing::{PlaceError, Until, Want};
use std::ffi::c_int;
use std::io;
use std::sync::Arc;

/// `PCAP_ERROR`.
pub const ERROR: c_int = -1;
/// `PCAP_ERROR_NO_SUCH_DEVICE`.
pub const NO_SUCH_DEVICE: c_int = -5;
/// `PCAP_ERROR_PERM_DENIED`.
pub const PERM_DENIED: c_int = -8;
/// `PCAP_WARNING`: the call succeeded, and pcap_geterr(3PCAP) has a warning.
pub const WARNING: c_int = 1;

/// An open handle of the system's library. A copy of this value stands for the same handle.
pub trait Handle: System + Life + Member + Return {}

impl<H: System + Life + Member + Return> Handle for H {}

/// A setting of a handle that is not activated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// pcap_set_snaplen(3PCAP).
    Snaplen(c_int),
    /// pcap_set_buffer_size(3PCAP).
    BufferSize(c_int),
    /// pcap_set_protocol_linux(3PCAP).
    Protocol(u16),
}

/// The operations of the system's library and the kernel for a handle.
pub trait System: Copy + PartialEq {
    /// The system library's pcap_activate(3PCAP).
    fn activate(self) -> c_int;

    /// Calls the system library's function for a setting.
    fn set(self, setting: Setting);

    /// The text of pcap_geterr(3PCAP).
    fn error(self) -> String;

    /// Makes `text` the text of pcap_geterr(3PCAP). Returns [`ERROR`].
    fn fail(self, text: &str) -> c_int;

    /// Whether the system's library has activated the handle.
    fn is_activated(self) -> bool;

    /// Compiles filter expressions.
    fn compiler(self) -> PcapCompiler<'static>;

    /// Whether a network device with this name exists.
    fn finds(self, device: &str) -> bool;

    /// Whether the handle's device is a network interface, or `any`. libpcap has other devices too.
    fn is_on_interfaces(self) -> bool;

    /// Whether the handle's device is one network interface.
    fn is_of_one_interface(self) -> bool;

    /// In words, how the host or a container uses the handle's device, so that it may need the
    /// device's packets; `None` if neither uses the device.
    fn host_use(self) -> Option<&'static str>;

    /// Binds the handle's silent socket to its device.
    ///
    /// # Errors
    /// The error of bind(2).
    fn bind(self) -> io::Result<()>;

    /// The filter of the handle's socket.
    ///
    /// # Errors
    /// The kernel's error.
    fn kernel_filter(self) -> io::Result<Option<Filter>>;
}

/// Our library's state of a handle, in addition to the system library's, and the handle's reader.
pub trait Life: Copy {
    /// The requests for the handle; `None` if nothing is configured or requested for it.
    fn request(self) -> Option<Arc<Request>>;

    /// Records the requests for the handle.
    fn remember(self, request: Arc<Request>);

    /// The notes on the handle.
    fn notes(self) -> Notes;

    /// Changes the notes on a handle that has a request. `change` runs under a lock (decision 12):
    /// it must not use a handle, allocate, free or wait.
    fn note(self, change: impl FnOnce(&mut Notes));

    /// The handles on all devices after the first; `None` if the application's handle is on one
    /// device.
    fn others(self) -> Option<Arc<[Self]>>;

    /// Makes the changes `wants` to a device. `until` says how long the changes last: while the
    /// handle is open, or until a user restores the old values.
    ///
    /// # Errors
    /// Why these changes of the device are impossible.
    fn place(self, device: &str, wants: &[Want], until: Until) -> Result<(), PlaceError>;

    /// Installs one reader for the handles on all devices, in the first handle. Called only within
    /// pcap_activate(3PCAP), while no thread reads the handle. If `all` is a single handle on
    /// packet sockets that our reader can't read, installs no reader: the system's library then
    /// reads the handle.
    ///
    /// # Errors
    /// Why no reader can be installed.
    fn take_over(all: &[Self]) -> Result<(), String>;

    /// Whether our reader reads the handle.
    fn is_read_by_us(self) -> bool;

    /// Makes the kernel truncate the handle's packets to the snapshot length, if our reader reads
    /// `reader_of`.
    fn truncate(self, reader_of: Self);

    /// Makes the handle's reader publish the counters of its members.
    fn publish_counters(self);

    /// Combines `own`, the filter of the socket, with the steering program.
    ///
    /// # Errors
    /// Why the filter and the steering program can't be combined.
    fn refilter(
        self,
        steered: &mut Unchanging<'_>,
        own: io::Result<Option<Filter>>,
    ) -> Result<Filtering, SteerError>;
}

/// The operations of a handle in its group.
pub trait Member: Copy {
    /// Prepares a handle that is not activated yet for a group on an engine. Does every step of the
    /// join that the engine may refuse.
    ///
    /// # Errors
    /// Why the engine can't serve the handle.
    fn prepare(self, choice: &GroupChoice, asked: &OnEngine) -> Result<(), JoinError>;

    /// Discards what [`Member::prepare`] has prepared.
    fn forget(self);

    /// Joins a group. If the group has several devices, `together` are the handles on all of these
    /// devices, in the devices' order. The first of these handles joins before the others.
    ///
    /// # Errors
    /// Why the handle can't join.
    fn join(self, choice: &GroupChoice, together: &[Self]) -> Result<(), JoinError>;

    /// Enters a group of the poller of the handle's device; without a group, a group of the
    /// handle's own. Does nothing if the handle is in a group of the poller already. Returns the
    /// poller's number.
    ///
    /// # Errors
    /// Why the handle is no member.
    fn enter(self, choice: Option<&GroupChoice>, asked: &Polled) -> Result<u64, JoinError>;

    /// Checks whether the handle could join a group.
    ///
    /// # Errors
    /// The error that joining would return.
    fn foresee(self, choice: &GroupChoice) -> Result<(), JoinError>;

    /// The mode or steering program of a group on the handle's device.
    fn runs(self, group: u16) -> Runs;

    /// The text of the steering program of a group on the handle's device, if its members publish
    /// it.
    fn program_text(self, group: u16) -> Option<String>;

    /// The group that the handle is in; `None` if it has joined none.
    fn group(self) -> Option<Joined>;

    /// Replaces the steering program of the handle's group.
    ///
    /// # Errors
    /// The error message.
    fn replace_program(self, steering: &Arc<Steering>) -> Result<(), String>;

    /// Another application in the handle's group; `None` if no other application is known.
    fn stranger(self) -> Option<Stranger>;

    /// Bytes of the ring that an engine has made for the handle; `None` on packet sockets, and if
    /// the ring has no size in bytes.
    fn ring_bytes(self) -> Option<u64>;

    /// Notes for others why the member began its group with mode `hash` instead of `flow`.
    fn note_no_flow(self, why: NoFlow);

    /// The handle's part in its group's steering program, if the group has one.
    fn steered(self) -> Option<Arc<Steered>>;

    /// The part of the member's page that records when the member rejects all packets.
    fn rejections(self) -> Option<Rejections>;

    /// Makes the engine that fills the handle's rings run `filter`. The record of each packet then
    /// has `number`, the number of the filter that was run on the packet. If the engine can't run
    /// `filter`, it runs no filter for the handle, and the result is false.
    fn filter_on_engine(self, filter: &[Classic], number: u32) -> bool;
}

/// The operations of a handle whose device is gone, and that waits for the device's return.
pub trait Return: Copy {
    /// Makes the handle wait when its device is gone, because of the setting `origin`. Called at
    /// the end of the activation.
    ///
    /// # Errors
    /// Why the handle can't wait.
    fn expect_return(self, origin: &str) -> Result<(), String>;

    /// Whether the handle has left its device.
    fn is_away(self) -> bool;

    /// Leaves the device, which is gone, and the group on it. Only the reading thread calls this
    /// function, after it has delivered all packets. Afterwards the handle has a socket that is
    /// bound to no device, and receives nothing.
    ///
    /// # Errors
    /// Why the handle can't wait.
    fn leave(self) -> Result<(), String>;

    /// Frees what other threads may still have used when the handle left its device. Only the
    /// reading thread calls this function, in a later attempt to capture again. As long as any
    /// member has not done so, the group can't begin on another device.
    fn let_go(self);

    /// Whether a device of the name that the handle was opened with is up.
    ///
    /// # Errors
    /// Why the handle would not find such a device, or can't capture on it.
    fn is_back(self) -> Result<bool, String>;

    /// Binds the new socket to the device and to a protocol that no frame carries.
    ///
    /// # Errors
    /// The error of bind(2) and setsockopt(2).
    fn bind_silently(self) -> io::Result<()>;

    /// Makes the reader read the handle's new ring. Only the reading thread calls this function.
    ///
    /// # Errors
    /// Why the ring can't be read.
    fn renew_reader(self) -> Result<(), String>;
}

/// The group that a handle is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The group's number.
    pub group: u16,
    /// The group's mode.
    pub mode: Mode,
    /// The handle's weight, if the group has weights.
    pub weight: Option<u16>,
    /// The handle's class, 0 to 63; 0 is the default class.
    pub class: u8,
}

/// The state of a handle between calls of the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The application's pcap_set_snaplen().
    pub snaplen: Option<c_int>,
    /// The application's pcap_set_protocol_linux().
    pub protocol: Option<u16>,
    /// The application's pcap_set_buffer_size(), or the size that settings ask for instead.
    pub buffer_size: Option<c_int>,
    /// The application's pcap_set_timeout(), in milliseconds.
    pub timeout: Option<c_int>,
    /// The application's pcap_set_immediate_mode().
    pub is_immediate: bool,
    /// The application's pcap_set_promisc().
    pub is_promiscuous: bool,
    /// An activated handle's requirements for the engine or the poller that fills its rings; `None`
    /// on packet sockets.
    pub on_engine: Option<AskedOfEngine>,
    /// Whether the handle asked for no group, and so has a private group on its engine or of its
    /// poller.
    pub is_alone: bool,
    /// The number that a poller chose for the handle's new group (`PCAP_FANOUT_NEW`). The handle
    /// enters the group by this number again. `None` if no poller chose one.
    pub new_group: Option<u16>,
    /// If the application's handle is on several devices that have pollers: a number that the
    /// handles on these devices have in common, and no others of the process; 0: none yet.
    pub whole: u32,
    /// The number of the poller that has to serve the handle's device, because it serves another
    /// device of the application's handle, with the same group; 0: any poller.
    pub poller: u64,
    /// Number of the filter that the application set last; its first filter has number 1. 0 if the
    /// application has set no filter.
    pub filters: u32,
    /// How far the handle's activation has come.
    pub part: PartState,
}

/// A handle's requirements for the engine that fills its rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedOfEngine {
    /// The engine.
    pub engine: Driver,
    /// Whether the host loses the packets.
    pub steal: Steal,
    /// Whether packets that the host sends are captured too.
    pub outgoing: bool,
}

/// How far the activation of the handle on one device has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartState {
    /// Either nothing is configured for the handle, or the application's handle is on one device
    /// and not activated yet.
    #[default]
    None,
    /// The application's handle is on several devices, and the handle on this device is not
    /// activated yet.
    New,
    /// The handle is activated and silent: it has not joined its group yet. The application may
    /// call pcap_activate() again.
    Silent,
    /// The handle receives packets.
    Live,
    /// The application's handle is on several devices, and the handle on this device could not be
    /// activated.
    Failed,
}
