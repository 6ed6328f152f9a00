//! gRPC messages as bytes, as far as probes need them: two kinds of fields are written, and one number is read.
//!
//! What is read is read as it comes in, and kept nowhere: a command may print megabytes, of which nothing matters but how it ended.

/// Fields of a message.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH: u64 = 2;
const FOUR_BYTES: u64 = 5;

impl Message {
    /// Adds a text.
    pub(super) fn text(mut self, field: u64, text: &str) -> Self {
        self.varint((field << 3) | LENGTH);
        self.varint(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Adds a number.
    pub(super) fn number(mut self, field: u64, number: u64) -> Self {
        self.varint((field << 3) | VARINT);
        self.varint(number);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// As it is sent: not compressed, with its length before it. Nothing if it is too long for that.
    pub(super) fn framed(self) -> Option<Vec<u8>> {
        let length = u32::try_from(self.0.len()).ok()?;
        let mut framed = vec![0];
        framed.extend_from_slice(&length.to_be_bytes());
        framed.extend(self.0);
        Some(framed)
    }
}

/// What came is no message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads one number of a message, and passes over all else.
#[derive(Debug)]
pub(super) struct Reader {
    field: u64,
    number: u64,
    state: State,
    /// How much of the message is to come.
    left: u32,
    is_whole: bool,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Before the message: so many bytes of its head have come, and its length as far as they tell it.
    Head(u8, u32),
    /// Which field comes.
    Key(Varint),
    /// A number, of this field.
    Number(u64, Varint),
    /// How long a field is.
    Length(Varint),
    /// So much is passed over.
    Skip(u64),
}

#[derive(Debug, Clone, Copy, Default)]
struct Varint {
    value: u64,
    shift: u32,
}

impl Varint {
    /// Takes the next byte. The number, if it is whole.
    fn take(&mut self, byte: u8) -> Result<Option<u64>, Malformed> {
        if self.shift > 63 {
            return Err(Malformed);
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        Ok((byte & 0x80 == 0).then_some(self.value))
    }
}

const KEY: State = State::Key(Varint { value: 0, shift: 0 });

impl Reader {
    /// Of this field.
    pub(super) const fn new(field: u64) -> Self {
        Self { field, number: 0, state: State::Head(0, 0), left: 0, is_whole: false }
    }

    /// The number, once there was a whole message; 0 if the message does not have it.
    pub(super) fn number(&self) -> Option<u64> {
        self.is_whole.then_some(self.number)
    }

    /// Takes what has come.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        while let [byte, rest @ ..] = bytes {
            match self.state {
                State::Head(count, length) => {
                    self.head(count, length, *byte)?;
                    bytes = rest;
                }
                State::Skip(left) => {
                    let most = left.min(self.left.into());
                    let taken = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[taken..];
                    let left = left - taken as u64;
                    self.state = if left == 0 { KEY } else { State::Skip(left) };
                    self.passed(u32::try_from(taken).unwrap_or(u32::MAX))?;
                }
                State::Key(_) | State::Number(..) | State::Length(_) => {
                    self.next(*byte)?;
                    bytes = rest;
                    self.passed(1)?;
                }
            }
        }
        Ok(())
    }

    /// The head of a message: that it is not compressed, and its length in four bytes.
    fn head(&mut self, count: u8, length: u32, byte: u8) -> Result<(), Malformed> {
        match count {
            0 if byte != 0 => return Err(Malformed),
            0 => self.state = State::Head(1, 0),
            1..4 => self.state = State::Head(count + 1, (length << 8) | u32::from(byte)),
            _ => {
                self.left = (length << 8) | u32::from(byte);
                self.state = KEY;
                self.passed(0)?;
            }
        }
        Ok(())
    }

    fn next(&mut self, byte: u8) -> Result<(), Malformed> {
        self.state = match self.state {
            State::Key(mut key) => match key.take(byte)? {
                None => State::Key(key),
                Some(whole) => match whole & 7 {
                    VARINT => State::Number(whole >> 3, Varint::default()),
                    EIGHT_BYTES => State::Skip(8),
                    LENGTH => State::Length(Varint::default()),
                    FOUR_BYTES => State::Skip(4),
                    _ => return Err(Malformed),
                },
            },
            State::Number(field, mut number) => match number.take(byte)? {
                None => State::Number(field, number),
                Some(whole) => {
                    if field == self.field {
                        self.number = whole;
                    }
                    KEY
                }
            },
            State::Length(mut length) => match length.take(byte)? {
                None => State::Length(length),
                Some(0) => KEY,
                Some(whole) => State::Skip(whole),
            },
            other @ (State::Head(..) | State::Skip(_)) => other,
        };
        Ok(())
    }

    /// So much of the message was read.
    fn passed(&mut self, count: u32) -> Result<(), Malformed> {
        self.left = self.left.checked_sub(count).ok_or(Malformed)?;
        if self.left > 0 {
            return Ok(());
        }
        match self.state {
            State::Key(Varint { shift: 0, .. }) => {
                (self.state, self.is_whole) = (State::Head(0, 0), true);
                Ok(())
            }
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of these bytes, whole and byte by byte.
    fn read(field: u64, bytes: &[u8]) -> Result<Option<u64>, Malformed> {
        let mut whole = Reader::new(field);
        let outcome = whole.feed(bytes).map(|()| whole.number());
        let mut pieces = Reader::new(field);
        let by_byte = bytes.iter().try_for_each(|byte| pieces.feed(&[*byte])).map(|()| pieces.number());
        assert_eq!(outcome, by_byte, "however it comes in");
        outcome
    }

    #[test]
    fn what_is_written_is_as_the_format_says() {
        let framed = Message::default().text(1, "ab").number(3, 300).framed();
        assert_eq!(framed, Some(vec![0, 0, 0, 0, 7, 0x0a, 2, b'a', b'b', 0x18, 0xac, 0x02]));
        assert_eq!(Message::default().framed(), Some(vec![0; 5]));
    }

    #[test]
    fn a_number_is_found_among_all_else() {
        let long = "x".repeat(100_000);
        let message =
            Message::default().text(1, &long).text(2, "").number(4, 7).number(3, u64::MAX).framed().expect("short");
        assert_eq!(read(3, &message), Ok(Some(u64::MAX)));
        assert_eq!(read(4, &message), Ok(Some(7)));
        assert_eq!(read(5, &message), Ok(Some(0)), "a number that is 0 is not sent");
        assert_eq!(read(3, &message[..message.len() - 1]), Ok(None), "it is not whole");
        assert_eq!(read(1, &[0; 5]), Ok(Some(0)), "an empty message is one");
        // Fields of four and eight bytes.
        let fixed = [0, 0, 0, 0, 16, 0x0d, 1, 2, 3, 4, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x18, 9];
        assert_eq!(read(3, &fixed), Ok(Some(9)));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for wrong in [
            &[1, 0, 0, 0, 0][..],
            &[0, 0, 0, 0, 1, 0x0f],
            &[0, 0, 0, 0, 2, 0x0a, 5],
            &[0, 0, 0, 0, 1, 0x80],
            &[0, 0, 0, 0, 12, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(read(3, wrong), Err(Malformed), "{wrong:?}");
        }
    }
}
