//! The requests for a handle: those of the settings when the handle is created, and those of the
//! application's later calls.

use fanpcap_config::device::{ANY, Device};
use fanpcap_config::driver::Driver;
use fanpcap_config::fanout::{Fanout, Script};
use fanpcap_config::report::{Fault, Report, quote};
use fanpcap_config::settings::{Environment, Explained, FanoutCall, Plan, Settings};
use fanpcap_config::steering::{PcapCompiler, Steering};
use fanpcap_group::roster;
use fanpcap_linux::{interface, process};
use std::io;
use std::sync::{Arc, OnceLock};

/// The primary name of the interface with the name `device`; `None` if no interface has this name.
fn own_name(device: &str) -> io::Result<Option<String>> {
    match interface::find(device)? {
        Some(index) => interface::find_name(index),
        None => Ok(None),
    }
}

/// The report when a device's primary name, which settings use, can't be read.
pub fn unreadable(device: &str, error: &io::Error) -> Report {
    let message = format!("cannot look up device {}: {error}", quote(device));
    let fault = Fault::new("device-unreadable", message);
    fault.hint("try again").at("device", 1, device)
}

/// The report if a device string names a device twice.
pub fn named_twice(device: &Device) -> Option<Report> {
    let parts = device.parts();
    let is_again = |at: &usize| parts[..*at].iter().any(|part| part.name == parts[*at].name);
    let name = &parts[(1..parts.len()).find(is_again)?].name;
    let text = device.text();
    let message = format!("device {} is named twice", quote(name));
    let fault = Fault::new("device-named-twice", message).hint("name each device once");
    Some(
        fault
            .shift(text.rfind(name).unwrap_or_default())
            .at("device", 1, text),
    )
}

/// The requests for one handle.
#[derive(Clone, Debug)]
pub struct Request {
    device: Device,
    settings: Result<Settings, Report>,
    call: Option<FanoutCall>,
    /// The steering program of the handle's group.
    steering: OnceLock<Arc<Steering>>,
}

impl Request {
    /// The request of a handle on `device`; `None` if nothing is configured and the device string
    /// has neither a prefix nor `^`. Errors in the settings are kept for [`Request::plan`], because
    /// opening a handle never fails.
    pub fn new(device: &str) -> Option<Self> {
        let environment = Environment::of_process(process::is_secure());
        let request = Self::of(device, Settings::load(&environment));
        let configured = request
            .settings
            .as_ref()
            .map_or(true, |settings| !settings.is_empty());
        let device = &request.device;
        let ordinary = device.engine().is_none() && device.parts().len() == 1;
        (configured || !ordinary).then_some(request)
    }

    /// The request of a handle on `device` by these settings.
    pub fn of(device: &str, mut settings: Result<Settings, Report>) -> Self {
        let exists = |name: &str| name == ANY || interface::index(name).is_some();
        // An interface may have alternative names. Settings use the primary one.
        let whole = own_name(device).unwrap_or_else(|error| {
            if settings.as_ref().is_ok_and(|settings| !settings.is_empty()) {
                settings = Err(unreadable(device, &error));
            }
            None
        });
        let mut device = Device::classify(whole.as_deref().unwrap_or(device), exists);
        if whole.is_none() {
            // Best effort: if a name can't be looked up, the activation reports it.
            device = device.renamed(|name| own_name(name).ok().flatten());
        }
        if let (true, Ok(settings)) = (device.names_none(), &settings) {
            let of_group = settings.default_group().and_then(roster::device_of);
            if let Some(interface) = of_group {
                device = device.on(&interface);
            }
        }
        Self {
            device,
            settings,
            call: None,
            steering: OnceLock::new(),
        }
    }

    /// The request of a handle for which nothing was configured when the application opened it.
    pub fn plain() -> Self {
        let device = Device::classify("", |_| false);
        Self {
            device,
            settings: Ok(Settings::default()),
            call: None,
            steering: OnceLock::new(),
        }
    }

    /// A request for each device of a handle on several devices; `None` for a handle on one device.
    pub fn of_parts(&self) -> Option<Vec<Self>> {
        let parts = self.device.parts();
        (parts.len() > 1).then(|| {
            let settings = named_twice(&self.device).map_or_else(|| self.settings.clone(), Err);
            let of_part = |part| Self {
                device: self.device.of_part(part),
                settings: settings.clone(),
                ..self.clone()
            };
            parts.iter().map(of_part).collect()
        })
    }

    /// The device's name for the system's library.
    pub fn system_name(&self) -> &str {
        self.device.system_name()
    }

    /// The request with packet sockets instead of the engine.
    #[must_use]
    pub fn falling_back(&self) -> Self {
        Self {
            device: self.device.clone().falling_back(),
            steering: OnceLock::new(),
            ..self.clone()
        }
    }

    /// Records the application's pcap_fanout(). The call takes precedence over environment and
    /// file. The last call wins.
    pub fn handle_call(&mut self, call: FanoutCall) {
        self.call = Some(call);
        self.steering = OnceLock::new();
    }

    /// Compiles the steering program of the application's call, if the call has one.
    ///
    /// # Errors
    /// The first mistake in the steering program.
    pub fn compile_call(&self, pcap: PcapCompiler<'_>) -> Result<(), Report> {
        match self.call.as_ref().and_then(|call| call.fanout.as_ref()) {
            Some(Fanout::Program(script)) => self.compile(script, pcap).map(drop),
            Some(Fanout::Mode(_)) | None => Ok(()),
        }
    }

    /// Makes the plan of the handle. Compiles a steering program only once. `pcap` compiles the
    /// filter expressions in it.
    ///
    /// # Errors
    /// The first mistake, with its place. No setting is applied in that case.
    pub fn plan(&self, pcap: PcapCompiler<'_>) -> Result<Plan, Report> {
        let settings = self.settings.as_ref().map_err(Clone::clone)?;
        let (call, interfaces) = (self.call.as_ref(), interface::names());
        let compile = |script: &Script| self.compile(script, pcap);
        settings.plan(&self.device, call, &interfaces, &compile)
    }

    /// Explains the settings of each device of the handle: each value with its origin. `pcap`
    /// compiles filter expressions.
    ///
    /// # Errors
    /// A mistake in the settings. With this mistake no handle can be activated.
    pub fn explain(&self, pcap: PcapCompiler<'_>) -> Result<Vec<Explained>, Report> {
        let settings = self.settings.as_ref().map_err(Clone::clone)?;
        let interfaces = interface::names();
        let explain = |request: &Self| {
            let compile = |script: &Script| request.compile(script, pcap);
            settings.explain(&request.device, &interfaces, &compile)
        };
        let parts = self.of_parts();
        Ok(match parts {
            Some(parts) => parts.iter().map(explain).collect(),
            None => vec![explain(self)],
        })
    }

    /// The handle's engine, if the packets come from a poller.
    pub fn polled(&self) -> Option<Driver> {
        self.settings.as_ref().ok()?.polled(&self.device)
    }

    fn is_on_engine(&self) -> bool {
        let settings = self.settings.as_ref();
        settings.is_ok_and(|settings| settings.is_on_engine(&self.device))
    }

    fn compile(&self, script: &Script, pcap: PcapCompiler<'_>) -> Result<Arc<Steering>, Report> {
        if let Some(steering) = self.steering.get() {
            return Ok(Arc::clone(steering));
        }
        let compile = match self.is_on_engine() {
            true => Steering::compile_for_engine,
            false => Steering::compile,
        };
        let steering = Arc::new(compile(script, pcap)?);
        Ok(Arc::clone(self.steering.get_or_init(|| steering)))
    }
}
