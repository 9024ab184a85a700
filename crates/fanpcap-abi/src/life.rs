//! Implements the trait of the crate `fanpcap` for a handle: with the system's library, our reader
//! and the group.

use crate::handles::{self, Entry};
use crate::pcap_handle::PcapHandle;
use crate::system::{self, NOT_ACTIVATED};
use crate::take_over;
use fanpcap::handle::{Handle, Notes};
use fanpcap::request::Request;
use fanpcap_bpf::Classic;
use fanpcap_config::device::ANY;
use fanpcap_config::mode::Mode;
use fanpcap_config::settings::Membership;
use fanpcap_config::steering::{PcapCompiler, Steering};
use fanpcap_group::join::{
    self, Engine, Entrant, JoinError, Leg, Prepared, ProgramError, Runs, Xdp,
};
use fanpcap_group::record::MemberCounters;
use fanpcap_group::rejecting::Rejections;
use fanpcap_group::replace::replace;
use fanpcap_group::stake::Stake;
use fanpcap_group::steered::{Filtering, SteerError, Steered, Unchanging};
use fanpcap_group::turn::Turn;
use fanpcap_linux::bpf::Loaded;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::host_use;
use fanpcap_linux::packet::{self, Address, Filter};
use fanpcap_nic::placing::{self, PlaceError, Until, Want};
use fanpcap_steer::ebpf;
use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::AsRawFd;
use std::sync::Arc;

impl Handle for PcapHandle {
    fn activate(self) -> c_int {
        self.activate()
    }

    fn set_snaplen(self, bytes: c_int) {
        self.set(|of| of.pcap_set_snaplen, bytes);
    }

    fn set_buffer_size(self, bytes: c_int) {
        self.set(|of| of.pcap_set_buffer_size, bytes);
    }

    fn set_protocol(self, protocol: u16) {
        self.set(|of| of.pcap_set_protocol_linux, protocol.into());
    }

    fn error(self) -> String {
        self.error()
    }

    fn fail(self, text: &str) -> c_int {
        self.fail(text)
    }

    fn request(self) -> Option<Arc<Request>> {
        handles::with(self, |entry| Arc::clone(&entry.request))
    }

    fn remember(self, request: Arc<Request>) {
        drop(handles::with_new(self, |entry| {
            mem::replace(&mut entry.request, request)
        }));
    }

    fn is_activated(self) -> bool {
        self.datalink() != NOT_ACTIVATED
    }

    fn notes(self) -> Notes {
        handles::with(self, |entry| entry.notes).unwrap_or_default()
    }

    fn note(self, change: impl FnOnce(&mut Notes)) {
        handles::with(self, |entry| change(&mut entry.notes));
    }

    fn others(self) -> Option<Arc<[Self]>> {
        handles::with(self, |entry| entry.others.clone()).flatten()
    }

    fn compiler(self) -> PcapCompiler<'static> {
        &system::compile
    }

    fn finds(self, device: &str) -> bool {
        !matches!(interface::find(device), Ok(None))
    }

    fn place(self, device: &str, wants: &[Want], until: Until) -> Result<(), PlaceError> {
        let placed = placing::place(device, wants, until)?;
        drop(handles::with(self, |entry| entry.placed.replace(placed)));
        Ok(())
    }

    fn take_over(self) {
        take_over::take_over(self);
    }

    fn take_over_several(all: &[Self]) -> Result<(), String> {
        take_over::take_over_several(all)
    }

    fn prepare_on_xdp(self, membership: &Membership, outgoing: bool) -> Result<(), JoinError> {
        let prepared = Arc::new(join::prepare(self.ifindex(), membership, outgoing)?);
        drop(handles::with(self, |entry| {
            entry.prepared.replace(prepared)
        }));
        Ok(())
    }

    fn leave_xdp(self) {
        drop(handles::with(self, |entry| entry.prepared.take()));
    }

    fn host_use(self) -> Option<&'static str> {
        host_use::of(self.ifindex()).unwrap_or(Some("the kernel does not list its routes"))
    }

    fn is_on_interfaces(self) -> bool {
        let request = self.request();
        let device = request.as_ref().map(|request| request.system_name());
        self.ifindex() != 0 || device.is_none_or(|device| device == ANY)
    }

    fn take_over_on_xdp(self) -> Result<(), String> {
        take_over::take_over_on_xdp(self)
    }

    fn is_read_by_us(self) -> bool {
        self.has_reader()
    }

    fn truncate(self, reader_of: Self) {
        take_over::truncate(self, reader_of);
    }

    fn publish_counters(self) {
        take_over::publish_counters(self);
    }

    fn bind(self) -> io::Result<()> {
        let socket = self.socket().ok_or(ErrorKind::NotConnected)?;
        let address = packet::address(socket)?;
        let protocol = protocol(self);
        packet::bind(
            socket,
            Address {
                protocol,
                ..address
            },
        )
    }

    fn join(self, membership: &Membership, together: &[Self]) -> Result<(), JoinError> {
        let socket = self.socket().ok_or(JoinError::NotPacket)?;
        let others = Others::of(self, together)?;
        let prepared = handles::with(self, |entry| entry.prepared.clone()).flatten();
        // Without statistics, zeros are right.
        let counted = self.statistics().unwrap_or_default();
        let member = join::join(Entrant {
            socket,
            membership,
            protocol: protocol(self),
            before: MemberCounters {
                received: counted.received.into(),
                dropped: counted.dropped.into(),
            },
            leg: others.leg(),
            engine: engine(self, prepared.as_deref()),
        })?;
        let fd = socket.as_raw_fd();
        let prepared = handles::with_new(self, |entry| {
            entry.member = Some((member, fd));
            entry.prepared.take()
        });
        drop(prepared);
        Ok(())
    }

    fn foresee(self, membership: &Membership) -> Result<(), JoinError> {
        let socket = self.socket().ok_or(JoinError::NotPacket)?;
        join::foresee(socket, membership, protocol(self))
    }

    fn runs(self, group: u16) -> Runs {
        let address = self.socket().map(packet::address);
        match address {
            Some(Ok(address)) => join::runs(address.ifindex, group),
            Some(Err(_)) | None => Runs::Nothing,
        }
    }

    fn program_text(self, group: u16) -> Option<String> {
        join::program_text(self.socket()?, group)
    }

    fn group(self) -> Option<(u16, Mode)> {
        handles::identity(self).map(|identity| (identity.known_group(), identity.mode()))
    }

    fn weight(self) -> Option<u16> {
        handles::stake(self)?.weight()
    }

    fn class(self) -> u8 {
        handles::stake(self).map_or(0, |stake| stake.class())
    }

    fn replace_program(self, steering: &Arc<Steering>) -> Result<(), String> {
        let digest = |entry: &mut Entry| Some(entry.member.as_ref()?.0.digest());
        let has = handles::with(self, digest).flatten();
        let has_it = has == Some(steering.digest());
        let Some(identity) = handles::identity(self).filter(|_| !has_it) else {
            return Ok(());
        };
        let busy = |error| ProgramError::of(identity.group(), error).to_string();
        let turn = Turn::take(&identity).map_err(busy)?;
        let members = handles::members(self, &identity);
        if members.is_empty() {
            return Err("pcap_fanout: the handle has no part in a program to replace".to_owned());
        }
        let replaced = replace(&turn, &members, steering, &handles::copy_socket);
        // A waiting reader may have computed its wait for the old steering program.
        handles::nudge_readers();
        replaced.map_err(|error| error.to_string())
    }

    fn stranger(self) -> Option<(String, u32)> {
        handles::identity(self)?.stranger()
    }

    fn filter_on_xdp(self, filter: &[Classic], number: u32) -> Option<u32> {
        let stake = handles::stake(self)?;
        let (program, slot, _) = stake.on_xdp()?;
        let object = ebpf::xdp_filter(filter).ok();
        let loaded = object.and_then(|object| Loaded::load(&object, "fanpcap_filter").ok());
        let loaded = loaded.map(Loaded::into_program);
        let set = program.set_filter(slot, loaded.as_ref().map(|loaded| (loaded, number)));
        set.ok().and(loaded).map(|_| number)
    }

    fn steered(self) -> Option<Arc<Steered>> {
        handles::steered(self)
    }

    fn rejections(self) -> Option<Rejections> {
        handles::rejections(self)
    }

    fn kernel_filter(self) -> io::Result<Option<Filter>> {
        Filter::of(self.socket().ok_or(ErrorKind::NotConnected)?)
    }

    fn refilter(
        self,
        steered: &mut Unchanging<'_>,
        own: io::Result<Option<Filter>>,
    ) -> Result<Filtering, SteerError> {
        let no_socket = || SteerError::Read(ErrorKind::NotConnected.into());
        steered.refilter(self.socket().ok_or_else(no_socket)?, own)
    }
}

/// The other devices of a handle's group.
enum Others {
    None,
    /// They come after the handle's.
    After(Vec<u32>),
    /// The group's first device is another, with this stake.
    Before(Arc<Stake>),
}

impl Others {
    /// `together`: the handles on all devices of the group, if it has several.
    fn of(p: PcapHandle, together: &[PcapHandle]) -> Result<Self, JoinError> {
        match together.split_first() {
            None => Ok(Self::None),
            Some((first, others)) if *first == p => {
                let index =
                    |other: &PcapHandle| Some(packet::address(other.socket()?).ok()?.ifindex);
                let indices = others.iter().map(index).collect::<Option<_>>();
                indices.map(Self::After).ok_or(JoinError::NotPacket)
            }
            Some((first, _)) => {
                let stake = handles::stake(*first);
                stake.map(Self::Before).ok_or(JoinError::NotPacket)
            }
        }
    }

    fn leg(&self) -> Leg<'_> {
        match self {
            Self::None => Leg::Only,
            Self::After(others) => Leg::First(others),
            Self::Before(stake) => Leg::Behind(stake),
        }
    }
}

/// What takes the packets of a handle that is activated.
fn engine(p: PcapHandle, prepared: Option<&Prepared>) -> Engine<'_> {
    let notes = p.notes();
    let Some((asked, prepared)) = notes.on_xdp.zip(prepared) else {
        return Engine::Sockets;
    };
    Engine::Xdp(Xdp {
        prepared,
        snaplen: u32::try_from(p.snapshot()).unwrap_or(u32::MAX),
        bytes: notes.buffer_size.and_then(|it| u32::try_from(it).ok()),
        outgoing: asked.outgoing,
        steal: asked.steal,
    })
}

impl PcapHandle {
    /// The index of the device; 0 for all devices, or none.
    fn ifindex(self) -> u32 {
        let request = self.request();
        let device = request.as_ref().map(|request| request.system_name());
        device.and_then(interface::index).unwrap_or(0)
    }
}

/// The protocol that a handle captures, `ETH_P_*`.
fn protocol(p: PcapHandle) -> u16 {
    p.notes().protocol.unwrap_or(packet::ETH_P_ALL)
}
