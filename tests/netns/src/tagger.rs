//! Adds a VLAN tag to the skb of each frame that a device sends, as a VLAN device with offload
//! does.

use anyhow::{Context, Result};
use fanpcap_bpf::{Instruction, ProgramKind};
use fanpcap_linux::bpf::{Attached, Hook, LoadedProgram};
use fanpcap_linux::interface;
use std::fs;

/// Adds a tag to each frame that a device sends, while this value exists. The tag is in the skb's
/// metadata and not in the bytes of the frame. `bpf_skb_vlan_push` does what the driver of a VLAN
/// device does. The tests do not use a VLAN device, because the kernels on which they run may not
/// support VLAN devices.
#[derive(Debug)]
pub struct Tagger {
    link: Attached,
}

impl Tagger {
    /// Adds the tag `vlan` to the frames that `device` sends.
    ///
    /// # Errors
    /// The kernel refuses the BPF program.
    pub fn on(device: &str, vlan: u16) -> Result<Self> {
        Self::of(device, TAG, vlan)
    }

    /// Adds a tag with this protocol and control information to the frames that `device` sends.
    ///
    /// # Errors
    /// The kernel refuses the BPF program.
    pub fn of(device: &str, protocol: u16, vlan: u16) -> Result<Self> {
        let code = [
            Instruction::set(2, protocol.to_be().into()),
            Instruction::set(3, vlan.into()),
            Instruction::new(CALL, 0, 0, 0, VLAN_PUSH),
            Instruction::set(0, NEXT),
            Instruction::exit(),
        ];
        let ifindex = interface::index(device).with_context(|| format!("no device {device}"))?;
        let program = LoadedProgram::load(ProgramKind::SchedCls, "tagger", &code)?;
        let link = program.attach(ifindex, Hook::Egress).context("tcx")?;
        Ok(Self { link })
    }
}

impl Drop for Tagger {
    /// Detaches the BPF program explicitly. To close the link's descriptor is not enough: a process
    /// that another test has started may have a copy of the descriptor, which would keep the
    /// program attached.
    fn drop(&mut self) {
        let _ = self.link.detach();
    }
}

/// Whether XDP programs that use tail calls can read the tag that the kernel keeps outside the
/// frame. They can since Linux 6.16.
///
/// # Errors
/// /proc can't be read.
pub fn are_tags_told() -> Result<bool> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(|it: char| !it.is_ascii_digit());
    let mut next = || numbers.next().and_then(|it| it.parse().ok());
    let (major, minor): (Option<u32>, Option<u32>) = (next(), next());
    Ok((major, minor) >= (Some(6), Some(16)))
}

/// Ethernet's type of an 802.1Q tag.
const TAG: u16 = 0x8100;
const CALL: u8 = 0x85;
/// The helper `bpf_skb_vlan_push`.
const VLAN_PUSH: i32 = 18;
/// `TCX_NEXT`: other BPF programs of the hook run too.
const NEXT: i32 = -1;
