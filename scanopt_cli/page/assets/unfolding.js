// Which bodies and groups open: one level more, or all below something.

const MOST_UNFOLDED = 500;

// All parts that are laid out, those in open bodies as well.
function* laidParts(laid) {
  for (const part of laid.parts) {
    yield part;
    if (part.body) yield* laidParts(part.body);
  }
}

const aroundOf = (path) => path.split("/").slice(0, -1).join("/");

// By what a group is known to be open.
const groupKey = ({ path, group }) => `${aroundOf(path)}#${group.id}`;

function groupsAround(members, id) {
  for (const member of members) {
    if (typeof member === "number") continue;
    if (leaves(member).includes(id)) return [member, ...groupsAround(member.members, id)];
  }
  return [];
}

// Opens the folded loops in sight, those in open bodies as well; if there is none, the groups.
function unfoldOnce(laid, open) {
  const parts = [...laidParts(laid)];
  const loops = parts.filter((part) => part.box?.body && !open.has(part.path));
  for (const part of loops) open.add(part.path);
  for (const part of loops.length ? [] : parts) if (part.group) open.add(groupKey(part));
}

// Opens all that is folded below a path, or everywhere, level by level, as long as no more boxes are
// shown than can be read; returns how many stay folded.
function unfoldBelow(graphs, laid, open, under) {
  const parts = [...laidParts(laid)];
  const isBelow = ({ path }) => !under || path === under || path.startsWith(`${under}/`);
  const waiting = parts.filter(isBelow).map((part) => ({ ...part, level: graphs.level(part.level) }));
  let shown = parts.length;
  let left = 0;
  const opens = (key, members) => {
    if (open.has(key)) return false; // what is inside is laid out, and waits already
    if (shown + members.length > MOST_UNFOLDED) {
      left += 1;
      return false;
    }
    shown += members.length;
    open.add(key);
    return true;
  };
  const add = (members, level, around) => waiting.push(...members.map((member) =>
    (typeof member === "number"
      ? { path: `${around}/${member}`, box: level.byId.get(member), level }
      : { path: `${around}/${member.id}`, group: member, level })));
  for (let n = 0; n < waiting.length; n++) {
    const { path, box, group, level } = waiting[n];
    if (group && opens(groupKey({ path, group }), group.members)) {
      add(group.members, level, aroundOf(path));
    } else if (box?.body) {
      const body = graphs.level(box.body);
      if (opens(path, body.shown)) add(body.shown, body, path);
    }
  }
  return left;
}
