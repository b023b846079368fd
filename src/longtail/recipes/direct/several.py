"""What `direct` needs beside `Shard` where several processes train it: dropout, and gradients of what all of them have.

The encoder is on every process, and must stay the same there to the last bit: each process encodes a part of a batch,
then all of them learn from the gradients of all parts.
"""

from __future__ import annotations

from torch import Tensor, nn

from longtail.nn.batches import Bags
from longtail.nn.shards import Shard
from longtail.training.objectives import ModelAdam


class DropoutOfPart(nn.Module):
    """Dropout of a part of a batch as it would be in the whole, so that results do not depend on how many share it.

    documents: of the whole batch; whoever encodes a part says so before.
    """

    def __init__(self, whole: nn.Dropout, shard: Shard) -> None:
        super().__init__()
        self.dropout, self.shard, self.documents = whole, shard, 0

    def forward(self, x_bD: Tensor) -> Tensor:
        if not self.training:
            return x_bD
        kept: Tensor = self.dropout(x_bD.new_ones(self.documents, x_bD.shape[1]))
        return x_bD * kept[self.shard.part(self.documents)]


def with_dropout_of_part(model: nn.Module, shard: Shard) -> list[DropoutOfPart]:
    """Every dropout inside becomes one of a part of a batch; these."""
    found: list[DropoutOfPart] = []
    for name, module in model.named_children():
        if isinstance(module, nn.Dropout):
            setattr(model, name, DropoutOfPart(module, shard))
            found.append(getattr(model, name))
        else:
            found += with_dropout_of_part(module, shard)
    return found


def share_gradients(adam: ModelAdam, shard: Shard, bags: Bags | None, documents: int, loss: Tensor) -> None:
    """Gradients that this process has of its part of a batch become those of the whole; the loss, too.

    bags: features of the whole batch, of which every process knows its own and those of the others: so of a table's
    gradient only the rows of documents travel, not those of features.
    """
    if shard.processes == 1:
        return
    for table in adam.tables.values():
        left = table.take_gradient()
        if left is not None:
            assert bags is not None, "a table is read by bags"
            table.leave_gradient(bags, shard.gathered(left[1].float(), documents, "encoder"))
    dense = [p.grad for p in adam.dense.values() if p.grad is not None]
    shard.summed_together([*dense, loss], "encoder")
