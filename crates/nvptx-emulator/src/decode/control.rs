//! Decodes branches, barriers and warp-wide instructions.

use super::Decoder;
use super::mods::Mods;
use super::op::{AtomOp, BarKind, Barrier, Op, PSrc, SINK, ShuffleKind, VoteKind};
use crate::error::{Error, Result};
use crate::parse::ast::Arg;
use crate::ty::Ty;

impl Decoder {
    pub(super) fn control(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Option<Op>> {
        let op = match mods.root {
            "bra" => {
                mods.has("uni");
                self.arity(args, &[1])?;
                Op::Branch { to: self.label_of(&args[0])? }
            }
            "brx" => self.branch_index(mods, args)?,
            "ret" => {
                mods.has("uni");
                Op::Exit
            }
            "exit" => Op::Exit,
            "trap" => Op::Trap,
            "bar" | "barrier" => self.barrier(mods, args)?,
            "membar" => {
                mods.need_one_of(&["cta", "gl", "sys"])?;
                Op::Nothing
            }
            "fence" => {
                if mods.has("proxy") {
                    mods.need_one_of(&["async"])?;
                    let space = mods.one_of(&["shared::cta", "shared::cluster", "global"]);
                    let is_shared = space != Some("global");
                    return Ok(Some(if is_shared { Op::ProxyFence } else { Op::Nothing }));
                }
                mods.one_of(&["acq_rel", "sc", "acquire", "release"]);
                mods.need_one_of(&["cta", "cluster", "gpu", "sys"])?;
                Op::Nothing
            }
            "nanosleep" => {
                mods.ty()?;
                self.arity(args, &[1])?;
                self.src(&args[0], Ty::U32)?;
                Op::Nothing
            }
            "shfl" => self.shuffle(mods, args)?,
            "vote" => self.vote(mods, args)?,
            "match" => self.matching(mods, args)?,
            "redux" => self.reduce(mods, args)?,
            "activemask" => {
                mods.ty()?;
                self.arity(args, &[1])?;
                Op::ActiveMask { d: self.dst(&args[0], Ty::B32)? }
            }
            "elect" => self.elect(mods, args)?,
            "call" => return Err(mods.error("calls are not supported: inline the function")),
            _ => return Ok(None),
        };
        Ok(Some(op))
    }

    fn label_of(&self, arg: &Arg) -> Result<u32> {
        match arg {
            Arg::Name(name) => self.label(name),
            _ => Err(Error::at(self.line, "expected a label")),
        }
    }

    fn branch_index(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        if !mods.has("idx") {
            return Err(mods.unknown());
        }
        mods.has("uni");
        self.arity(args, &[2])?;
        let index = self.src(&args[0], Ty::U32)?;
        let Arg::Name(name) = &args[1] else {
            return Err(mods.error("expected the name of a `.branchtargets`"));
        };
        let names = self
            .scopes
            .iter()
            .rev()
            .find_map(|scope| self.targets.get(&(scope.id, name.clone())))
            .ok_or_else(|| mods.error(format!("`{name}` is no `.branchtargets`")))?
            .clone();
        let targets: Vec<u32> = names.iter().map(|n| self.label(n)).collect::<Result<_>>()?;
        let count = targets.len() as u32;
        Ok(Op::BranchIndex { index, targets: self.list(&targets), count })
    }

    fn barrier(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        if mods.has("warp") {
            if !mods.has("sync") {
                return Err(mods.unknown());
            }
            self.arity(args, &[1])?;
            return Ok(Op::WarpBarrier { members: self.src(&args[0], Ty::B32)? });
        }
        mods.has("cta");
        let is_aligned = mods.root == "bar" || mods.has("aligned");
        let (mut d, mut p) = (SINK, PSrc::Const(true));
        let mut rest = args;
        let kind = match mods.need_one_of(&["sync", "arrive", "red"])? {
            "sync" => BarKind::Sync,
            "arrive" => BarKind::Arrive,
            _ => {
                let kind = match mods.need_one_of(&["popc", "and", "or"])? {
                    "popc" => BarKind::RedPopc,
                    "and" => BarKind::RedAnd,
                    _ => BarKind::RedOr,
                };
                let ty = mods.ty()?;
                if (ty == Ty::U32) != (kind == BarKind::RedPopc) {
                    return Err(mods.unknown());
                }
                self.arity(args, &[3, 4])?;
                d = self.dst(&args[0], ty)?;
                p = self.psrc(&args[args.len() - 1])?;
                rest = &args[1..args.len() - 1];
                kind
            }
        };
        self.arity(rest, if kind == BarKind::Arrive { &[2] } else { &[1, 2] })?;
        let id = self.src(&rest[0], Ty::U32)?;
        let threads = match rest.get(1) {
            Some(arg) => Some(self.src(arg, Ty::U32)?),
            None => None,
        };
        Ok(Op::Barrier(Barrier { kind, is_aligned, id, threads, d, p }))
    }

    fn sync(&self, mods: &mut Mods<'_>) -> Result<()> {
        if mods.has("sync") {
            return Ok(());
        }
        Err(mods.error("only the `.sync` form exists since sm_70"))
    }

    fn shuffle(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        self.sync(mods)?;
        let kind = match mods.need_one_of(&["up", "down", "bfly", "idx"])? {
            "up" => ShuffleKind::Up,
            "down" => ShuffleKind::Down,
            "bfly" => ShuffleKind::Bfly,
            _ => ShuffleKind::Idx,
        };
        let ty = mods.ty()?;
        if ty.bytes() != 4 {
            return Err(mods.unknown());
        }
        self.arity(args, &[5])?;
        let (d, p) = self.pair(&args[0], ty)?;
        let a = self.src(&args[1], ty)?;
        let (b, c) = (self.src(&args[2], Ty::B32)?, self.src(&args[3], Ty::B32)?);
        let members = self.src(&args[4], Ty::B32)?;
        Ok(Op::Shuffle { kind, d, p, a, b, c, members })
    }

    /// `d` or `d|p`.
    fn pair(&mut self, arg: &Arg, ty: Ty) -> Result<(u32, u32)> {
        match arg {
            Arg::Pair(d, p) => Ok((self.dst(d, ty)?, self.pdst(p)?)),
            d => Ok((self.dst(d, ty)?, SINK)),
        }
    }

    fn vote(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        self.sync(mods)?;
        let kind = match mods.need_one_of(&["all", "any", "uni", "ballot"])? {
            "all" => VoteKind::All,
            "any" => VoteKind::Any,
            "uni" => VoteKind::Uni,
            _ => VoteKind::Ballot,
        };
        let ty = mods.ty()?;
        if (ty == Ty::B32) != (kind == VoteKind::Ballot) {
            return Err(mods.unknown());
        }
        self.arity(args, &[3])?;
        let d = self.dst(&args[0], ty)?;
        let p = self.psrc(&args[1])?;
        Ok(Op::Vote { kind, d, p, members: self.src(&args[2], Ty::B32)? })
    }

    fn matching(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let all = mods.need_one_of(&["any", "all"])? == "all";
        self.sync(mods)?;
        let ty = mods.ty()?;
        if !matches!(ty, Ty::B32 | Ty::B64) {
            return Err(mods.unknown());
        }
        self.arity(args, &[3])?;
        let (d, p) = self.pair(&args[0], Ty::B32)?;
        let a = self.src(&args[1], ty)?;
        let members = self.src(&args[2], Ty::B32)?;
        Ok(Op::Match { all, wide: ty == Ty::B64, d, p, a, members })
    }

    fn reduce(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        self.sync(mods)?;
        let op = match mods.need_one_of(&["add", "min", "max", "and", "or", "xor"])? {
            "add" => AtomOp::Add,
            "min" => AtomOp::Min,
            "max" => AtomOp::Max,
            "and" => AtomOp::And,
            "or" => AtomOp::Or,
            _ => AtomOp::Xor,
        };
        let ty = mods.ty()?;
        let is_logic = matches!(op, AtomOp::And | AtomOp::Or | AtomOp::Xor);
        if !(if is_logic { ty == Ty::B32 } else { matches!(ty, Ty::S32 | Ty::U32) }) {
            return Err(mods.unknown());
        }
        self.arity(args, &[3])?;
        let (d, a) = (self.dst(&args[0], ty)?, self.src(&args[1], ty)?);
        let members = self.src(&args[2], Ty::B32)?;
        Ok(Op::Reduce { op, signed: ty == Ty::S32, d, a, members })
    }

    fn elect(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        self.sync(mods)?;
        self.arity(args, &[2])?;
        let Arg::Pair(d, p) = &args[0] else {
            return Err(mods.error("expected `d|p`"));
        };
        let (d, p) = (self.dst(d, Ty::B32)?, self.pdst(p)?);
        Ok(Op::Elect { d, p, members: self.src(&args[1], Ty::B32)? })
    }
}
