"""Small modules that the library's tests run: one that answers and is told, one that asks and tells."""

from mesh_runtime import Absent, Contract, Found, Lookup, ModuleRuntime, Tell, answers, told


class Weather(Contract):
    """What is found."""

    sky: str


class WeatherAt(Lookup[Found[Weather] | Absent], answered_by="sage"):
    """A lookup that can be absent: of a place called ``nowhere``."""

    place: str


class Places(Lookup[Found[tuple[str, ...]]], answered_by="sage"):
    """A lookup of a list: it cannot be absent."""


class Noted(Tell):
    """A tell with an id, which is its key."""

    id: int
    text: str = ""


class Sage(ModuleRuntime):
    """Answers both lookups and notes what it is told."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # passed on as they come
        self.noted: list[int] = []

    @answers(WeatherAt)
    async def weather(self, ask: WeatherAt) -> Found[Weather] | Absent:
        """Absent for ``nowhere``."""
        return Absent(revision=7) if ask.place == "nowhere" else Found(value=Weather(sky=f"clear at {ask.place}"), revision=7)

    @answers(Places)
    async def places(self, ask: Places) -> Found[tuple[str, ...]]:
        """A fixed list."""
        return Found(value=("here", "there"), revision=7)

    @told(Noted)
    async def note(self, tell: Noted) -> None:
        """Keeps the ids."""
        self.noted.append(tell.id)


class Pupil(ModuleRuntime):
    """Asks and tells; answers nothing."""

    tells = (Noted,)
