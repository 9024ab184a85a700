//! What a handle's life asks of the system's library, of the reader and of the group: a trait, so
//! that a fake can stand for them in tests.

use crate::request::Request;
use fanpcap_config::mode::Mode;
use fanpcap_config::settings::Membership;
use fanpcap_config::steering::{PcapCompiler, Steering};
use fanpcap_group::join::JoinError;
use fanpcap_group::rejecting::Rejections;
use fanpcap_group::steered::{Filtering, SteerError, Steered, Unchanging};
use fanpcap_linux::packet::Filter;
use std::ffi::c_int;
use std::io;
use std::sync::Arc;

/// `PCAP_ERROR`.
pub const ERROR: c_int = -1;
/// `PCAP_ERROR_NO_SUCH_DEVICE`.
pub const NO_SUCH_DEVICE: c_int = -5;
/// `PCAP_ERROR_PERM_DENIED`.
pub const PERM_DENIED: c_int = -8;
/// `PCAP_WARNING`: done, but pcap_geterr(3PCAP) has something to say.
pub const WARNING: c_int = 1;

/// An open handle of the system's library. A copy is the same handle.
pub trait Handle: Copy + PartialEq {
    /// The system library's pcap_activate(3PCAP).
    fn activate(self) -> c_int;

    /// The system library's pcap_set_snaplen(3PCAP).
    fn set_snaplen(self, bytes: c_int);

    /// The system library's pcap_set_buffer_size(3PCAP).
    fn set_buffer_size(self, bytes: c_int);

    /// The system library's pcap_set_protocol_linux(3PCAP).
    fn set_protocol(self, protocol: u16);

    /// The text of pcap_geterr(3PCAP).
    fn error(self) -> String;

    /// Makes `text` the text of pcap_geterr(3PCAP). Returns [`ERROR`].
    fn fail(self, text: &str) -> c_int;

    /// What is asked of the handle; `None` for a handle that nothing concerns.
    fn request(self) -> Option<Arc<Request>>;

    /// Has the handle remember what is asked of it.
    fn remember(self, request: Arc<Request>);

    /// Whether the system's library has activated the handle.
    fn is_activated(self) -> bool;

    /// What is noted of the handle.
    fn notes(self) -> Notes;

    /// Changes what is noted of a handle that has a request. `change` runs under a lock (decision
    /// 12): it uses no handle, and neither allocates, frees nor waits.
    fn note(self, change: impl FnOnce(&mut Notes));

    /// The handles on the other devices, where the application has this one for several.
    fn others(self) -> Option<Arc<[Self]>>;

    /// Compiles filter expressions.
    fn compiler(self) -> PcapCompiler<'static>;

    /// Whether there is a network device of this name.
    fn finds(self, device: &str) -> bool;

    /// Has our reader read the handle from now on, where it can. Called within pcap_activate(3PCAP)
    /// only, while nobody reads the handle.
    fn take_over(self);

    /// Has our reader read the handles together, as the first of them. Called as
    /// [`Handle::take_over`].
    ///
    /// # Errors
    /// Why that can't be.
    fn take_over_several(all: &[Self]) -> Result<(), String>;

    /// Whether our reader reads the handle.
    fn is_read_by_us(self) -> bool;

    /// Has the kernel cut the packets of a handle to its snapshot length, if our reader reads
    /// `reader_of`.
    fn truncate(self, reader_of: Self);

    /// Has the handle's reader publish the counters of its members.
    fn publish_counters(self);

    /// Has the handle's socket, which hears nothing yet, hear its device.
    ///
    /// # Errors
    /// What bind(2) says.
    fn bind(self) -> io::Result<()>;

    /// Joins a group.
    ///
    /// # Errors
    /// Why the handle can't join.
    fn join(self, membership: &Membership) -> Result<(), JoinError>;

    /// Foresees whether the handle can join a group.
    ///
    /// # Errors
    /// What joining would say.
    fn foresee(self, membership: &Membership) -> Result<(), JoinError>;

    /// The group that the handle is in, and the group's mode.
    fn group(self) -> Option<(u16, Mode)>;

    /// Gives the handle's group another steering program.
    ///
    /// # Errors
    /// What to say when that can't be.
    fn replace_program(self, steering: &Arc<Steering>) -> Result<(), String>;

    /// Another application in the handle's group: its name and process.
    fn stranger(self) -> Option<(String, u32)>;

    /// The handle's part in its group's steering program.
    fn steered(self) -> Option<Arc<Steered>>;

    /// What notes on the member's page that it rejects all packets.
    fn rejections(self) -> Option<Rejections>;

    /// The filter that the handle's socket has.
    ///
    /// # Errors
    /// What the kernel says.
    fn kernel_filter(self) -> io::Result<Option<Filter>>;

    /// Puts the filter that the socket has, `own`, beside the steering program.
    ///
    /// # Errors
    /// Why that can't be.
    fn refilter(
        self,
        steered: &mut Unchanging<'_>,
        own: io::Result<Option<Filter>>,
    ) -> Result<Filtering, SteerError>;
}

/// What is noted of a handle between the application's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The application's pcap_set_snaplen().
    pub snaplen: Option<c_int>,
    /// The application's pcap_set_protocol_linux().
    pub protocol: Option<u16>,
    /// The application's pcap_set_buffer_size().
    pub buffer_size: Option<c_int>,
    /// Activated, but pcap_activate() could not join: the application may call it again.
    pub is_unjoined: bool,
    /// The handle's part in a handle on several devices.
    pub part: Part,
}

/// How far the handle on one of several devices is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The handle is on its own.
    #[default]
    None,
    /// Not activated yet.
    New,
    /// Activated: it receives nothing yet, or joins as the last step.
    Silent,
    /// It receives.
    Live,
    /// It could not be activated.
    Failed,
}
