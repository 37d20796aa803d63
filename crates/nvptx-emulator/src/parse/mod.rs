//! Parses PTX text to [`ast::File`].
//!
//! An unknown directive or character is an error with its line. Instructions are only split into
//! opcode and operands; the decoder checks them.

pub(crate) mod ast;
mod lex;

use self::ast::{Arg, Entry, File, Param, RawInst, Space, Stmt, StmtKind, Var};
use self::lex::{Tok, Token};
use crate::error::{Error, Result};
use crate::ty::Ty;

pub(crate) fn parse(text: &str) -> Result<File> {
    let tokens = lex::lex(text)?;
    let mut parser = Parser { tokens, at: 0 };
    let mut file = File::default();
    while !parser.is_end() {
        parser.item(&mut file)?;
    }
    if file.version.is_empty() || file.target.is_empty() {
        return Err(Error::at(1, "the text needs `.version` and `.target`"));
    }
    Ok(file)
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn is_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    fn line(&self) -> u32 {
        let at = self.at.min(self.tokens.len().saturating_sub(1));
        self.tokens.get(at).map_or(1, |t| t.line)
    }

    fn peek(&self) -> Option<Tok<'a>> {
        self.tokens.get(self.at).map(|t| t.tok)
    }

    fn next(&mut self) -> Result<Tok<'a>> {
        let tok = self.peek().ok_or_else(|| self.error("the text ends too early"))?;
        self.at += 1;
        Ok(tok)
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::at(self.line(), message)
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(Tok::Punct(c));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, c: char) -> Result<()> {
        if self.eat(c) {
            return Ok(());
        }
        let found = self.peek().map_or("the end".to_string(), |t| show(&t));
        Err(self.error(format!("expected `{c}`, found {found}")))
    }

    fn word(&mut self) -> Result<&'a str> {
        match self.peek() {
            Some(Tok::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            other => {
                let found = other.map_or("the end".to_string(), |t| show(&t));
                Err(self.error(format!("expected a name, found {found}")))
            }
        }
    }

    fn uint(&mut self) -> Result<u64> {
        match self.next()? {
            Tok::Number(text) => match number(text) {
                Some(Arg::Int(value)) => Ok(value),
                _ => Err(self.error(format!("`{text}` is not an integer"))),
            },
            other => Err(self.error(format!("expected an integer, found {}", show(&other)))),
        }
    }

    /// Parses a directive of the module.
    fn item(&mut self, file: &mut File) -> Result<()> {
        let line = self.line();
        match self.word()? {
            ".version" => match self.next()? {
                Tok::Number(text) => file.version = text.to_string(),
                other => return Err(Error::at(line, format!("no version: {}", show(&other)))),
            },
            ".target" => {
                file.target = self.word()?.to_string();
                while self.eat(',') {
                    self.word()?;
                }
            }
            ".address_size" => {
                let bits = self.uint()?;
                if bits != 64 {
                    return Err(Error::at(line, format!("address size {bits}, only 64 is known")));
                }
            }
            ".file" => self.skip_line(line),
            ".section" => self.skip_section()?,
            ".visible" | ".weak" | ".common" => {}
            ".extern" => {
                let mut var = self.variable()?;
                var.is_extern = true;
                file.vars.push(var);
            }
            ".entry" => file.entries.push(self.entry(line)?),
            ".func" => {
                return Err(Error::at(line, "`.func` is not supported: inline the function"));
            }
            ".global" | ".const" | ".shared" => {
                self.at -= 1;
                let var = self.variable()?;
                file.vars.push(var);
            }
            other => return Err(Error::at(line, format!("unknown directive `{other}`"))),
        }
        Ok(())
    }

    fn skip_line(&mut self, line: u32) {
        while !self.is_end() && self.line() == line {
            self.at += 1;
        }
    }

    /// Skips debug sections, which have data for debuggers only.
    fn skip_section(&mut self) -> Result<()> {
        self.word()?;
        self.expect('{')?;
        while !self.eat('}') {
            self.next()?;
        }
        Ok(())
    }

    /// Parses `.shared .align 16 .b8 name[64] = {...};` after its state space.
    fn variable(&mut self) -> Result<Var> {
        let line = self.line();
        let space = match self.word()? {
            ".global" => Space::Global,
            ".const" => Space::Const,
            ".shared" => Space::Shared,
            ".local" => Space::Local,
            ".func" => return Err(Error::at(line, "`.func` is not supported")),
            other => return Err(Error::at(line, format!("unknown state space `{other}`"))),
        };
        let mut align = None;
        let ty = loop {
            match self.word()? {
                ".align" => align = Some(self.uint()? as u32),
                word => {
                    break self.ty(word)?;
                }
            }
        };
        let name = self.word()?.to_string();
        let (count, open) = self.dimensions()?;
        let mut bytes = count * u64::from(ty.bytes());
        let mut init = None;
        if self.eat('=') {
            let mut data = Vec::new();
            self.initialiser(ty, &mut data)?;
            if open {
                bytes = data.len() as u64;
            }
            if data.len() as u64 > bytes {
                return Err(Error::at(line, format!("`{name}` has too many initial values")));
            }
            data.resize(bytes as usize, 0);
            init = Some(data);
        }
        self.expect(';')?;
        let align = align.unwrap_or(ty.bytes());
        if !align.is_power_of_two() {
            return Err(Error::at(line, format!("alignment {align} is not a power of two")));
        }
        Ok(Var { line, space, name, align, bytes, is_extern: false, init })
    }

    /// Parses `[4][8]`: returns the number of elements, and whether the first dimension has no
    /// length.
    fn dimensions(&mut self) -> Result<(u64, bool)> {
        let (mut count, mut open) = (1u64, false);
        while self.eat('[') {
            if self.eat(']') {
                (count, open) = (0, true);
                continue;
            }
            let n = self.uint()?;
            count = count.checked_mul(n).ok_or_else(|| self.error("array too large"))?;
            self.expect(']')?;
        }
        if count > 1 << 38 {
            return Err(self.error("array too large"));
        }
        Ok((count, open))
    }

    fn initialiser(&mut self, ty: Ty, data: &mut Vec<u8>) -> Result<()> {
        if self.eat('{') {
            loop {
                self.initialiser(ty, data)?;
                if !self.eat(',') {
                    return self.expect('}');
                }
            }
        }
        let value = match (self.constant()?, ty) {
            (Arg::Int(value), ty) if !ty.is_float() => value,
            (Arg::F32(bits), Ty::F32) => u64::from(bits),
            (Arg::F64(bits), Ty::F32) => u64::from((f64::from_bits(bits) as f32).to_bits()),
            (Arg::F64(bits), Ty::F64) => bits,
            (Arg::Int(value), Ty::F64) => (value as i64 as f64).to_bits(),
            (Arg::Int(value), Ty::F32) => u64::from((value as i64 as f32).to_bits()),
            _ => return Err(self.error(format!("no initial value for type .{}", ty.name()))),
        };
        data.extend_from_slice(&value.to_le_bytes()[..ty.bytes() as usize]);
        Ok(())
    }

    fn ty(&self, word: &str) -> Result<Ty> {
        word.strip_prefix('.')
            .and_then(Ty::parse)
            .ok_or_else(|| self.error(format!("unknown type `{word}`")))
    }

    fn entry(&mut self, line: u32) -> Result<Entry> {
        let mut entry = Entry { line, name: self.word()?.to_string(), ..Entry::default() };
        if self.eat('(') && !self.eat(')') {
            loop {
                let param = self.param()?;
                entry.params.push(param);
                if !self.eat(',') {
                    break;
                }
            }
            self.expect(')')?;
        }
        while self.peek() != Some(Tok::Punct('{')) {
            let at = self.line();
            match self.word()? {
                ".maxntid" => entry.maxntid = Some(self.triple()?),
                ".reqntid" => entry.reqntid = Some(self.triple()?),
                ".minnctapersm" | ".maxnreg" | ".maxnctapersm" => {
                    self.uint()?;
                }
                ".pragma" => self.pragma()?,
                other => return Err(Error::at(at, format!("unknown directive `{other}`"))),
            }
        }
        self.expect('{')?;
        self.body(&mut entry.body)?;
        Ok(entry)
    }

    fn triple(&mut self) -> Result<[u32; 3]> {
        let mut out = [1; 3];
        out[0] = self.uint()? as u32;
        for slot in &mut out[1..] {
            if !self.eat(',') {
                break;
            }
            *slot = self.uint()? as u32;
        }
        Ok(out)
    }

    fn pragma(&mut self) -> Result<()> {
        match self.next()? {
            Tok::Str(_) => self.expect(';'),
            other => Err(self.error(format!("expected a string, found {}", show(&other)))),
        }
    }

    fn param(&mut self) -> Result<Param> {
        match self.word()? {
            ".param" => {}
            other => return Err(self.error(format!("expected `.param`, found `{other}`"))),
        }
        let (mut align, mut ty) = (None, None);
        loop {
            let word = self.word()?;
            match word {
                ".align" => align = Some(self.uint()? as u32),
                ".ptr" | ".global" | ".const" | ".shared" | ".local" if ty.is_some() => {}
                _ if word.starts_with('.') => ty = Some(self.ty(word)?),
                name => {
                    let ty = ty.ok_or_else(|| self.error("parameter without a type"))?;
                    let (count, _) = self.dimensions()?;
                    let bytes = count * u64::from(ty.bytes());
                    if bytes == 0 || bytes > 32764 {
                        return Err(self.error(format!("parameter of {bytes} bytes")));
                    }
                    let is_pointer_size = ty.bytes() == 8 && count == 1;
                    // The alignment of a pointer parameter is that of its target.
                    let align = if is_pointer_size { 8 } else { align.unwrap_or(ty.bytes()) };
                    let name = name.to_string();
                    return Ok(Param { name, align, bytes: bytes as u32, is_pointer_size });
                }
            }
        }
    }

    /// Parses the statements up to the closing brace of the kernel.
    fn body(&mut self, out: &mut Vec<Stmt>) -> Result<()> {
        let mut depth = 0;
        loop {
            let line = self.line();
            let kind = match self.next()? {
                Tok::Punct('{') => {
                    depth += 1;
                    StmtKind::Open
                }
                Tok::Punct('}') if depth == 0 => return Ok(()),
                Tok::Punct('}') => {
                    depth -= 1;
                    StmtKind::Close
                }
                Tok::Punct(';') => continue,
                Tok::Punct('@') => {
                    let negated = self.eat('!');
                    let guard = Some((self.word()?.to_string(), negated));
                    let op = self.word()?;
                    StmtKind::Inst(self.instruction(guard, op)?)
                }
                Tok::Word(".reg") => self.registers()?,
                Tok::Word(".shared" | ".local" | ".global" | ".const") => {
                    self.at -= 1;
                    StmtKind::Var(self.variable()?)
                }
                Tok::Word(".pragma") => {
                    self.pragma()?;
                    continue;
                }
                Tok::Word(".loc" | ".file") => {
                    self.skip_line(line);
                    continue;
                }
                Tok::Word(word) if word.starts_with('.') => {
                    return Err(Error::at(line, format!("unknown directive `{word}`")));
                }
                Tok::Word(word) if self.eat(':') => self.label(word)?,
                Tok::Word(op) => StmtKind::Inst(self.instruction(None, op)?),
                other => return Err(Error::at(line, format!("unexpected {}", show(&other)))),
            };
            out.push(Stmt { line, kind });
        }
    }

    fn label(&mut self, name: &str) -> Result<StmtKind> {
        if self.peek() != Some(Tok::Word(".branchtargets")) {
            return Ok(StmtKind::Label(name.to_string()));
        }
        self.at += 1;
        let mut targets = vec![self.word()?.to_string()];
        while self.eat(',') {
            targets.push(self.word()?.to_string());
        }
        self.expect(';')?;
        Ok(StmtKind::Targets(name.to_string(), targets))
    }

    fn registers(&mut self) -> Result<StmtKind> {
        let word = self.word()?;
        let ty = self.ty(word)?;
        let mut names = Vec::new();
        loop {
            let name = self.word()?.to_string();
            let count = if self.eat('<') {
                let n = self.uint()? as u32;
                self.expect('>')?;
                Some(n)
            } else {
                None
            };
            names.push((name, count));
            if !self.eat(',') {
                break;
            }
        }
        self.expect(';')?;
        Ok(StmtKind::Regs(ty, names))
    }

    fn instruction(&mut self, guard: Option<(String, bool)>, op: &str) -> Result<RawInst> {
        let mut args = Vec::new();
        if !self.eat(';') {
            loop {
                args.push(self.arg()?);
                if !self.eat(',') {
                    break;
                }
            }
            self.expect(';')?;
        }
        Ok(RawInst { guard, op: op.to_string(), args })
    }

    fn arg(&mut self) -> Result<Arg> {
        let first = self.arg_part()?;
        if self.eat('|') {
            let second = self.arg_part()?;
            return Ok(Arg::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn arg_part(&mut self) -> Result<Arg> {
        match self.peek() {
            Some(Tok::Word("_")) => {
                self.at += 1;
                Ok(Arg::Sink)
            }
            Some(Tok::Word(name)) => {
                self.at += 1;
                match self.offset()? {
                    Some(offset) => Ok(Arg::Sum(name.to_string(), offset)),
                    None => Ok(Arg::Name(name.to_string())),
                }
            }
            Some(Tok::Punct('!')) => {
                self.at += 1;
                Ok(Arg::Not(Box::new(self.arg_part()?)))
            }
            Some(Tok::Punct('{')) => {
                self.at += 1;
                let mut parts = vec![self.arg_part()?];
                while self.eat(',') {
                    parts.push(self.arg_part()?);
                }
                self.expect('}')?;
                Ok(Arg::Vec(parts))
            }
            Some(Tok::Punct('[')) => {
                self.at += 1;
                let arg = self.address()?;
                self.expect(']')?;
                Ok(arg)
            }
            _ => self.constant(),
        }
    }

    fn address(&mut self) -> Result<Arg> {
        if let Some(Tok::Word(name)) = self.peek() {
            self.at += 1;
            let offset = self.offset()?.unwrap_or(0);
            return Ok(Arg::Addr(Some(name.to_string()), offset));
        }
        match self.constant()? {
            Arg::Int(value) => Ok(Arg::Addr(None, value as i64)),
            _ => Err(self.error("an address must be an integer")),
        }
    }

    /// Parses `+4`, `-4` or `+-4` after a name.
    fn offset(&mut self) -> Result<Option<i64>> {
        let minus = match self.peek() {
            Some(Tok::Punct('+')) => false,
            Some(Tok::Punct('-')) => true,
            _ => return Ok(None),
        };
        self.at += 1;
        let again = self.eat('-');
        let value = self.uint()? as i64;
        Ok(Some(if minus != again { value.wrapping_neg() } else { value }))
    }

    fn constant(&mut self) -> Result<Arg> {
        let minus = self.eat('-');
        let tok = self.next()?;
        let Tok::Number(text) = tok else {
            return Err(self.error(format!("expected an operand, found {}", show(&tok))));
        };
        let value = number(text).ok_or_else(|| self.error(format!("bad number `{text}`")))?;
        Ok(match value {
            Arg::Int(v) if minus => Arg::Int(v.wrapping_neg()),
            Arg::F32(v) if minus => Arg::F32(v ^ 1 << 31),
            Arg::F64(v) if minus => Arg::F64(v ^ 1 << 63),
            other => other,
        })
    }
}

fn show(tok: &Tok<'_>) -> String {
    match tok {
        Tok::Word(text) | Tok::Number(text) => format!("`{text}`"),
        Tok::Str(text) => format!("\"{text}\""),
        Tok::Punct(c) => format!("`{c}`"),
    }
}

/// Parses a number: decimal, hexadecimal, octal, binary, `0f`, `0d`, or a decimal fraction, which
/// is a double.
fn number(text: &str) -> Option<Arg> {
    let lower = text.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0f") {
        return (hex.len() == 8).then(|| u32::from_str_radix(hex, 16).ok().map(Arg::F32))?;
    }
    if let Some(hex) = lower.strip_prefix("0d") {
        return (hex.len() == 16).then(|| u64::from_str_radix(hex, 16).ok().map(Arg::F64))?;
    }
    let digits = lower.strip_suffix('u').unwrap_or(&lower);
    let int = if let Some(hex) = digits.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if let Some(bin) = digits.strip_prefix("0b") {
        u64::from_str_radix(bin, 2)
    } else if digits.len() > 1 && digits.starts_with('0') && !digits.contains(['.', 'e']) {
        u64::from_str_radix(&digits[1..], 8)
    } else if digits.contains(['.', 'e']) {
        return digits.parse::<f64>().ok().map(|v| Arg::F64(v.to_bits()));
    } else {
        digits.parse::<u64>()
    };
    int.ok().map(Arg::Int)
}
