//! File format of profiles: the gzipped `profile.proto` of github.com/google/pprof. The numbers in calls of `bytes`
//! and `number` are that file's field numbers.

use evenkeel_api::protobuf::wire::{bytes, number};
use flate2::{Compression, write::GzEncoder};
use std::{collections::HashMap, io::Write as _};

/// Function on a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) address: u64,
}

impl Frame {
    /// Returns a frame with only a name.
    pub(super) fn named(function: &str) -> Self {
        Self { function: function.to_owned(), ..Self::default() }
    }
}

/// Profile under construction. The fields of bytes contain encoded fields of the message `Profile`.
pub(super) struct Profile {
    samples: Vec<u8>,
    sample_types: Vec<u8>,
    locations: Vec<u8>,
    functions: Vec<u8>,
    /// Period and time of the profile.
    settings: Vec<u8>,
    strings: Vec<String>,
    string_ids: HashMap<String, u64>,
    location_ids: HashMap<Vec<Frame>, u64>,
    function_ids: HashMap<(String, String), u64>,
}

impl Profile {
    /// Creates a profile without samples. Each sample has a value for each of `types`, which are pairs of name
    /// and unit. One sample is taken per `period`.
    pub(super) fn new(types: &[(&str, &str)], period_type: (&str, &str), period: i64) -> Self {
        let mut profile = Self {
            samples: Vec::new(),
            sample_types: Vec::new(),
            locations: Vec::new(),
            functions: Vec::new(),
            settings: Vec::new(),
            strings: Vec::new(),
            string_ids: HashMap::new(),
            location_ids: HashMap::new(),
            function_ids: HashMap::new(),
        };
        // The format requires that the first string is empty.
        profile.string_id("");
        for pair in types {
            let pair = profile.value_type(*pair);
            bytes(&mut profile.sample_types, 1, &pair);
        }
        let pair = profile.value_type(period_type);
        bytes(&mut profile.settings, 11, &pair);
        number(&mut profile.settings, 12, period.unsigned_abs());
        profile
    }

    /// Sets the start time in nanoseconds since 1970, and the duration in nanoseconds.
    pub(super) fn set_time(&mut self, start: i64, duration: i64) {
        number(&mut self.settings, 9, start.unsigned_abs());
        number(&mut self.settings, 10, duration.unsigned_abs());
    }

    /// Adds a stack, innermost location first. Each location has its inlined functions, innermost first.
    pub(super) fn sample(&mut self, stack: &[Vec<Frame>], values: &[i64], labels: &[(&str, &str)]) {
        let mut sample = Vec::new();
        for frames in stack {
            let id = self.location_id(frames);
            number(&mut sample, 1, id);
        }
        for value in values {
            number(&mut sample, 2, value.cast_unsigned());
        }
        for (key, value) in labels {
            let mut label = Vec::new();
            number(&mut label, 1, self.string_id(key));
            number(&mut label, 2, self.string_id(value));
            bytes(&mut sample, 3, &label);
        }
        bytes(&mut self.samples, 2, &sample);
    }

    /// Encodes the profile as a gzipped protobuf, as `go tool pprof` reads it.
    pub(super) fn gzip(&self) -> std::io::Result<Vec<u8>> {
        let mut file = GzEncoder::new(Vec::new(), Compression::fast());
        for part in [&self.sample_types, &self.samples, &self.locations, &self.functions] {
            file.write_all(part)?;
        }
        let mut strings = Vec::new();
        for string in &self.strings {
            bytes(&mut strings, 6, string.as_bytes());
        }
        file.write_all(&strings)?;
        file.write_all(&self.settings)?;
        file.finish()
    }

    fn value_type(&mut self, (name, unit): (&str, &str)) -> Vec<u8> {
        let mut message = Vec::new();
        number(&mut message, 1, self.string_id(name));
        number(&mut message, 2, self.string_id(unit));
        message
    }

    /// Returns the id of a location, and adds the location if it is new. `frames` are its inlined functions.
    fn location_id(&mut self, frames: &[Frame]) -> u64 {
        if let Some(id) = self.location_ids.get(frames) {
            return *id;
        }
        let id = self.location_ids.len() as u64 + 1;
        let mut location = Vec::new();
        number(&mut location, 1, id);
        number(&mut location, 3, frames.first().map_or(0, |frame| frame.address));
        for frame in frames {
            let mut line = Vec::new();
            number(&mut line, 1, self.function_id(frame));
            number(&mut line, 2, u64::from(frame.line));
            bytes(&mut location, 4, &line);
        }
        bytes(&mut self.locations, 4, &location);
        self.location_ids.insert(frames.to_vec(), id);
        id
    }

    /// Returns the id of a function, and adds the function if it is new.
    fn function_id(&mut self, frame: &Frame) -> u64 {
        let key = (frame.function.clone(), frame.file.clone());
        if let Some(id) = self.function_ids.get(&key) {
            return *id;
        }
        let id = self.function_ids.len() as u64 + 1;
        let mut function = Vec::new();
        number(&mut function, 1, id);
        number(&mut function, 2, self.string_id(&frame.function));
        number(&mut function, 4, self.string_id(&frame.file));
        bytes(&mut self.functions, 5, &function);
        self.function_ids.insert(key, id);
        id
    }

    /// Returns the index of a string in the string table, and adds the string if it is new.
    fn string_id(&mut self, text: &str) -> u64 {
        if let Some(id) = self.string_ids.get(text) {
            return *id;
        }
        let id = self.strings.len() as u64;
        self.strings.push(text.to_owned());
        self.string_ids.insert(text.to_owned(), id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn repeated_values_are_written_once() {
        let mut profile = Profile::new(&[("samples", "count")], ("cpu", "nanoseconds"), 10);
        let (a, b) =
            (vec![Frame::named("alpha")], vec![Frame::named("beta"), Frame::named("alpha")]);
        profile.sample(&[a.clone(), b.clone()], &[1], &[("thread", "main")]);
        profile.sample(&[b, a], &[300], &[]);
        let mut raw = Vec::new();
        flate2::read::GzDecoder::new(&profile.gzip().unwrap()[..]).read_to_end(&mut raw).unwrap();
        let text = String::from_utf8_lossy(&raw);
        for name in ["alpha", "beta", "thread", "nanoseconds"] {
            assert_eq!(text.matches(name).count(), 1, "{name}");
        }
        // The second sample has the locations 2 and 1, and the value 300.
        let second = [0x12, 0x07, 0x08, 2, 0x08, 1, 0x10, 0xac, 0x02];
        assert!(raw.windows(second.len()).any(|window| window == second));
        assert_eq!(profile.strings[0], "");
    }
}
