//! What a handle needs from the system's library, the reader and the group: traits, so that tests
//! can use a fake.

use crate::request::Request;
use fanpcap_bpf::Classic;
use fanpcap_config::driver::Driver;
use fanpcap_config::mode::Mode;
use fanpcap_config::settings::{GroupChoice, OnEngine, Steal};
use fanpcap_config::steering::{PcapCompiler, Steering};
use fanpcap_group::join::{JoinError, Runs};
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

/// An open handle of the system's library. A copy is the same handle.
pub trait Handle: System + Life + Member {}

impl<H: System + Life + Member> Handle for H {}

/// What a handle that is not activated is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// pcap_set_snaplen(3PCAP).
    Snaplen(c_int),
    /// pcap_set_buffer_size(3PCAP).
    BufferSize(c_int),
    /// pcap_set_protocol_linux(3PCAP).
    Protocol(u16),
}

/// What the system does for a handle: its library, and its kernel.
pub trait System: Copy + PartialEq {
    /// The system library's pcap_activate(3PCAP).
    fn activate(self) -> c_int;

    /// The system library's function for a setting.
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

    /// Whether the handle's device is a network interface, or all of them. libpcap has others.
    fn is_on_interfaces(self) -> bool;

    /// Why the host or a container may need what the handle's device receives.
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

/// What is known of a handle beside the system's library, and our reader in it.
pub trait Life: Copy {
    /// The requests for the handle; `None` if there are none.
    fn request(self) -> Option<Arc<Request>>;

    /// Records the requests for the handle.
    fn remember(self, request: Arc<Request>);

    /// The notes on the handle.
    fn notes(self) -> Notes;

    /// Changes the notes on a handle that has a request. `change` runs under a lock (decision 12):
    /// it uses no handle, and neither allocates, frees nor waits.
    fn note(self, change: impl FnOnce(&mut Notes));

    /// The handles on the other devices, if the application's handle is on several.
    fn others(self) -> Option<Arc<[Self]>>;

    /// Sets what is wanted of a device for as long as the handle is open, or longer.
    ///
    /// # Errors
    /// Why the device can't have it.
    fn place(self, device: &str, wants: &[Want], until: Until) -> Result<(), PlaceError>;

    /// Installs one reader for the handles on all devices in the first of them. Called only within
    /// pcap_activate(3PCAP), while no thread reads the handle. A handle on one device that has no
    /// engine but its packet socket is left to the system's library where our reader can't read it.
    ///
    /// # Errors
    /// Why that is impossible.
    fn take_over(all: &[Self]) -> Result<(), String>;

    /// Whether our reader reads the handle.
    fn is_read_by_us(self) -> bool;

    /// Makes the kernel truncate the handle's packets to its snapshot length, if our reader reads
    /// `reader_of`.
    fn truncate(self, reader_of: Self);

    /// Makes the handle's reader publish the counters of its members.
    fn publish_counters(self);

    /// Combines `own`, the socket's filter, with the steering program.
    ///
    /// # Errors
    /// Why that is impossible.
    fn refilter(
        self,
        steered: &mut Unchanging<'_>,
        own: io::Result<Option<Filter>>,
    ) -> Result<Filtering, SteerError>;
}

/// A handle in its group.
pub trait Member: Copy {
    /// Does everything that its engine may refuse to a handle that is to join a group. The handle
    /// is not activated yet. `None`: gives up what was prepared.
    ///
    /// # Errors
    /// Why the engine can't serve the handle.
    fn prepare(self, asked: Option<(&GroupChoice, &OnEngine)>) -> Result<(), JoinError>;

    /// Joins a group. `together` are the handles on all devices of the group, in their order, where
    /// it has several. The first of them has joined before the others.
    ///
    /// # Errors
    /// Why the handle can't join.
    fn join(self, choice: &GroupChoice, together: &[Self]) -> Result<(), JoinError>;

    /// Checks whether the handle could join a group.
    ///
    /// # Errors
    /// The error that joining would return.
    fn foresee(self, choice: &GroupChoice) -> Result<(), JoinError>;

    /// What a group runs on the handle's device.
    fn runs(self, group: u16) -> Runs;

    /// The text of the steering program of a group on the handle's device, if its members have it.
    fn program_text(self, group: u16) -> Option<String>;

    /// The group that the handle is in.
    fn group(self) -> Option<Joined>;

    /// Replaces the steering program of the handle's group.
    ///
    /// # Errors
    /// The error message.
    fn replace_program(self, steering: &Arc<Steering>) -> Result<(), String>;

    /// Another application in the handle's group: its name and process id.
    fn stranger(self) -> Option<(String, u32)>;

    /// The handle's part in its group's steering program.
    fn steered(self) -> Option<Arc<Steered>>;

    /// Records on the member's page when it rejects all packets.
    fn rejections(self) -> Option<Rejections>;

    /// Has the engine that fills the handle's rings run a filter, by this number. Whether it does:
    /// else no filter runs there.
    fn filter_on_engine(self, filter: &[Classic], number: u32) -> bool;
}

/// The group that a handle is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its number.
    pub group: u16,
    /// Its mode.
    pub mode: Mode,
    /// The handle's weight, if the group has weights.
    pub weight: Option<u16>,
    /// The handle's class, 0 to 63; 0 is the default class.
    pub class: u8,
}

/// Notes on a handle between the application's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The application's pcap_set_snaplen().
    pub snaplen: Option<c_int>,
    /// The application's pcap_set_protocol_linux().
    pub protocol: Option<u16>,
    /// The application's pcap_set_buffer_size().
    pub buffer_size: Option<c_int>,
    /// The application's pcap_set_timeout(), in milliseconds.
    pub timeout: Option<c_int>,
    /// The application's pcap_set_immediate_mode().
    pub is_immediate: bool,
    /// What an activated handle asks of the engine that fills its rings; `None`: it is on packet
    /// sockets.
    pub on_engine: Option<AskedOfEngine>,
    /// The handle has asked for no group, and has one of its own on its engine.
    pub is_alone: bool,
    /// Filters that were set on the handle.
    pub filters: u32,
    /// How far the handle's activation has come.
    pub part: PartState,
}

/// What a handle asks of the engine that fills its rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedOfEngine {
    /// The engine.
    pub engine: Driver,
    /// Whether the host loses the packets.
    pub steal: Steal,
    /// Packets that the host sends are captured too.
    pub outgoing: bool,
}

/// How far the activation of the handle on one device has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartState {
    /// The handle is the only one of its handle, and not activated, or with nothing configured.
    #[default]
    None,
    /// The handle is one of several, and not activated yet.
    New,
    /// The handle is activated, and receives nothing: it is to join yet. The application may call
    /// pcap_activate() again.
    Silent,
    /// The handle receives packets.
    Live,
    /// The handle, one of several, could not be activated.
    Failed,
}
