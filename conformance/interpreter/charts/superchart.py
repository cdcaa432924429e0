import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2)
left.bar(["a", "b"], [1, 2], label="one")
right.scatter([1, 2], [2, 1], label="two")
right.set_xticks([1, 2])
right.set_yticks([1, 2])
left.set_title("Left")
figure.suptitle("Both")
plt.show()
