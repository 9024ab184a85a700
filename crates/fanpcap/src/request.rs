//! What is asked of a handle between create and activate: by settings, and by the application's calls.

use crate::device::{Device, TPACKET};
use crate::report::{Fault, Report, quote};
use crate::settings::{Call, Environment, Plan, Settings};
use fanpcap_linux::{interface, process};
use std::io;

/// The own name of the interface that `device` is a name of; none for what is no interface.
fn own_name(device: &str) -> io::Result<Option<String>> {
    match interface::find(device)? {
        Some(index) => interface::find_name(index),
        None => Ok(None),
    }
}

/// Settings are by a device's own name, which can't be had.
pub fn unreadable(device: &str, error: &io::Error) -> Report {
    let message = format!("cannot look up device {}: {error}", quote(device));
    let fault = Fault::new("device-unreadable", message);
    fault.hint("try again").at("device", 1, device)
}

/// The wishes for one handle.
#[derive(Clone, Debug)]
pub struct Request {
    device: Device,
    settings: Result<Settings, Report>,
    call: Option<Call>,
}

impl Request {
    /// The request of a handle on `device`; none when nothing is configured and the name is an ordinary
    /// one. Errors in the settings are kept for [`Request::plan`]: opening a handle never fails.
    pub fn new(device: &str) -> Option<Self> {
        let mut settings = Settings::load(&Environment::of_process(process::is_secure()));
        let exists = |name: &str| name == "any" || interface::index(name).is_some();
        // An interface may have other names; settings know it by its own.
        let own_name = own_name(device).unwrap_or_else(|error| {
            if settings.as_ref().is_ok_and(|settings| !settings.is_empty()) {
                settings = Err(unreadable(device, &error));
            }
            None
        });
        let device = Device::classify(own_name.as_deref().unwrap_or(device), exists);
        let configured = settings
            .as_ref()
            .map_or(true, |settings| !settings.is_empty());
        let ordinary = device.engine().is_none() && device.parts().len() == 1;
        (configured || !ordinary).then_some(Self {
            device,
            settings,
            call: None,
        })
    }

    /// The request of a handle for which nothing was configured when it was opened.
    pub fn plain() -> Self {
        let device = Device::classify("", |_| false);
        Self {
            device,
            settings: Ok(Settings::default()),
            call: None,
        }
    }

    /// A request for each device of a handle on several; none for a handle on one.
    pub fn of_parts(&self) -> Option<Vec<Self>> {
        let parts = self.device.parts();
        let is_ours = self.device.engine().is_none_or(|engine| engine == TPACKET);
        (is_ours && parts.len() > 1).then(|| {
            let of_part = |part| Self {
                device: Device::of_part(part),
                ..self.clone()
            };
            parts.iter().map(of_part).collect()
        })
    }

    /// The device's name for the system's library.
    pub fn system_name(&self) -> &str {
        self.device.system_name()
    }

    /// The application's pcap_fanout(): it wins over environment and file, the last call wins.
    pub fn handle_call(&mut self, call: Call) {
        self.call = Some(call);
    }

    /// What the handle shall be.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place: then nothing is applied.
    pub fn plan(&self) -> Result<Plan, Report> {
        let settings = self.settings.as_ref().map_err(Clone::clone)?;
        settings.plan(&self.device, self.call.as_ref(), &interface::names())
    }
}
