//! The maps that a device's BPF programs share: the settings, the stamp, and the array of the
//! groups' BPF programs.

use crate::layout::{
    self, GROUP_SLOTS, PROGRAMS_MAP, SETTINGS_LEN, SETTINGS_MAP, STAMP_MAP, settings,
};
use crate::load;
use crate::root::{Tags, root};
use crate::unavailable::Unavailable;
use fanpcap_bpf::{MapKind, Object, ProgramKind};
use fanpcap_linux::bpf::{LoadError, Loaded, LoadedProgram, Map, ObjectArray, Table};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Own {
    pub(crate) programs: ObjectArray,
    pub(crate) settings: Table,
    pub(crate) stamp: Map,
}

impl Own {
    /// Creates the maps. The settings let the host get all packets.
    ///
    /// # Errors
    /// [`Unavailable::Load`].
    pub(crate) fn new() -> Result<Self, Unavailable> {
        let of_map = |error| Unavailable::Load(LoadError::of_map(ProgramKind::Xdp, error));
        let settings = Table::create_rows(SETTINGS_MAP, SETTINGS_LEN, 1).map_err(of_map)?;
        let programs = ObjectArray::create(PROGRAMS_MAP, MapKind::ProgArray, GROUP_SLOTS);
        let own = Self {
            programs: programs.map_err(of_map)?,
            settings,
            stamp: Map::create(STAMP_MAP, &layout::stamp()).map_err(of_map)?,
        };
        own.set(settings::VERDICT, layout::XDP_PASS);
        Ok(own)
    }

    /// The setting at this offset in the settings.
    fn setting(&self, at: i16) -> Option<&AtomicU32> {
        let at = usize::from(at.unsigned_abs());
        self.settings.view(at, 1)?.first()
    }

    pub(crate) fn get(&self, at: i16) -> u32 {
        let setting = self.setting(at);
        setting.map_or(0, |it| it.load(Ordering::Acquire))
    }

    /// Changes a setting, as a full barrier.
    pub(crate) fn set(&self, at: i16, number: u32) {
        if let Some(setting) = self.setting(at) {
            setting.store(number, Ordering::SeqCst);
        }
    }

    /// Loads the root that serves no group.
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub(crate) fn nobody(&self) -> Result<LoadedProgram, Unavailable> {
        self.load_root(0, None).map_err(|error| {
            // Before Linux 5.18, the kernel refuses a flag that this engine needs to load XDP
            // programs.
            let is_flag = |error: &io::Error| error.raw_os_error() == Some(EINVAL);
            if matches!(&error, LoadError::Refused(refused) if is_flag(&refused.error)) {
                return Unavailable::Kernel;
            }
            Unavailable::Load(error)
        })
    }

    /// Loads the root for these group slots. With `tags`, only the device of `tags` can run this
    /// root.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub(crate) fn load_root(
        &self,
        group_slots: u32,
        tags: Option<Tags>,
    ) -> Result<LoadedProgram, LoadError> {
        let root = root(group_slots, tags);
        let root: Object = root.map_err(|_| LoadError::Map(io::ErrorKind::Other.into()))?;
        let given = [
            (SETTINGS_MAP, self.settings.as_fd()),
            (STAMP_MAP, self.stamp.as_fd()),
            (PROGRAMS_MAP, self.programs.as_fd()),
        ];
        let device = tags.map_or(0, |tags| tags.ifindex);
        let name = match group_slots.count_ones() {
            1 => load::NAME,
            _ => "fanpcap_root",
        };
        Loaded::load_for(&root, name, &given, device).map(Loaded::into_program)
    }
}

/// errno(3).
const EINVAL: i32 = 22;
